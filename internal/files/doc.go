// Package files opens files whose paths come from a user. It rejects files that could block
// (pipes), files without an end (devices), URLs and, if a file contains code, files that other
// users could modify.
//
// Packages with paths in their API define an alias of [Error], so that their callers can match it.
package files
