// Package nesting traverses nested values. It converts errors to errors of package strategy.
package nesting
