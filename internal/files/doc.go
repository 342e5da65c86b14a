// Package files opens what a user's path names. It refuses what would hang (a pipe), what has no
// end (a device), what is no path of this machine (a URL), and, where a file is trusted with code,
// what other users can change.
//
// Packages that have paths in their interface give [Error] a name of their own, so that their
// callers can match it.
package files
