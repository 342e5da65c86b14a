// Package fault creates the errors of package strategy and of the packages that are built on it.
package fault
