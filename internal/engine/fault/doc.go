// Package fault creates the errors of package strategy and of its subpackages, so that the same
// mistake has the same message in each of them.
package fault
