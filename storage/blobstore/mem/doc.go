// Package mem registers URLs such as "mem://name/run" with storage.Open: buckets in the memory of
// this process, for tests and examples. All stores with the same bucket name share one bucket,
// which exists until the process exits.
//
//	import _ "github.com/tpustrategy/tpustrategy/storage/blobstore/mem"
package mem
