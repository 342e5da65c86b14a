// Package usercode tells the code of those who use this module from the code of the libraries that
// build graphs: of a call stack, it knows which frames are a user's.
package usercode
