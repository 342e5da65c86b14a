// Package drivers contains build overlays that add object stores to the commands and examples of
// the core module. The core module imports no object store, to limit its dependencies. Your own
// program needs only one import:
//
//	import _ "github.com/tpustrategy/tpustrategy/storage/blobstore/gcs"
//
// For a command of this repository, Go's -overlay flag adds the import without changing files:
//
//	cd storage/blobstore
//	go build -overlay drivers/gs.json -o ../../gpt github.com/tpustrategy/tpustrategy/examples/gpt
//
// The paths in gs.json are relative to storage/blobstore, so run the command there.
package drivers
