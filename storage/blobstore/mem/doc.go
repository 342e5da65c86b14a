// Package mem makes storage.Open take URLs such as "mem://name/run": buckets in the memory of this
// process, for tests and examples. All stores of one name are of one bucket, which lasts as long as
// the process.
//
//	import _ "github.com/tpustrategy/tpustrategy/storage/blobstore/mem"
package mem
