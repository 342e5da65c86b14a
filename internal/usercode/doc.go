// Package usercode distinguishes stack frames of user code from frames of the libraries that build
// computation graphs.
package usercode
