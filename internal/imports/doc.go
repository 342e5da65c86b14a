// Package imports enforces the order and the sizes of the module's packages. law.txt lists all
// packages, from the bottom up, with their permitted imports from the module. size.txt has limits
// for the sizes of the module, its packages and its types. The tests compare both files with the
// sources, and law.txt with the picture in docs/architecture.md:
//
//	go test ./internal/imports           # part of make lint
//	go test ./internal/imports -update   # draw the picture again, and lower the limits that are not reached
package imports
