// Package live counts the C objects of package pjrt, so that tests can check that none is leaked.
// Counting costs one atomic addition per object. Creation stacks are recorded only during such tests.
package live
