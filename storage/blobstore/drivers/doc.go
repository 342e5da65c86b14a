// Package drivers builds commands and examples of the core module with object stores inside. The
// core imports no object store, so that its dependencies stay few; a program of one's own has one
// line for it:
//
//	import _ "github.com/tpustrategy/tpustrategy/storage/blobstore/gcs"
//
// To a command of this repository Go's -overlay adds that line, and nothing is changed on the disk:
//
//	cd storage/blobstore
//	go build -overlay drivers/gs.json -o ../../gpt github.com/tpustrategy/tpustrategy/examples/gpt
//
// The file gs.json names the commands, and where it is run: in storage/blobstore.
package drivers
