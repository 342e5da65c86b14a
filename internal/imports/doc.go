// Package imports holds the module's packages to one order and to a size. The law is the table
// law.txt: it names every package, from the ground up, with what each may import of the module. The
// table size.txt says how large the module, its packages and their types may be. The tests of this
// package compare the tables with the sources, and the law with the picture in docs/architecture.md:
//
//	go test ./internal/imports           # part of make lint
//	go test ./internal/imports -update   # draw the picture again, and lower the counts that fell
package imports
