// Package leaktest makes a test fail if it does not close objects of package pjrt.
package leaktest
