// Package usercode distinguishes stack frames of the user's code from frames of the libraries that
// build graphs.
package usercode
