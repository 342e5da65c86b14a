// Package imports holds the module's packages to one order. The law is the table law.txt: it names
// every package, from the ground up, with what each may import of the module. The tests of this
// package compare the table with the sources, and with the picture in docs/architecture.md:
//
//	go test ./internal/imports           # part of make lint
//	go test ./internal/imports -update   # draw the picture again
package imports
