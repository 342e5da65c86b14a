// Package imports contains tests that enforce the dependencies and the sizes of the module's
// packages. law.txt lists all packages from low-level to high-level, with the packages that each
// may import. size.txt contains limits for the sizes of the module, its packages and its types. The
// tests compare both files with the source code, and law.txt with the diagram in
// docs/architecture.md:
//
//	go test ./internal/imports           # part of make lint
//	go test ./internal/imports -update   # update the diagram, and lower the limits to the current sizes
package imports
