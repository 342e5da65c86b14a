// Package blobstore stores the objects of package storage in an object store: Google Cloud Storage,
// S3, Azure, or any other service with a driver for gocloud.dev/blob. It is a separate module, so
// that programs that only use local folders do not have its dependencies.
//
// # A bucket by its URL
//
// After importing the package of a service, [storage.Open] accepts the URLs of that service:
//
//	import _ "github.com/tpustrategy/tpustrategy/storage/blobstore/gcs" // gs://bucket/run
//
//	store, err := storage.Open(ctx, "gs://bucket/run")
//
// The packages are gcs (gs://), s3 (s3://), azure (azblob://) and mem (mem://, for tests). Each one
// depends only on the client of its own service. [New] returns a store over a bucket that the
// program opened itself; for Google Cloud Storage use gcs.New, which also compares checksums.
//
// Package drivers documents how to build the commands and examples of the core module with an
// object store.
//
// URLs accept the parameters patience, stall and chunk, which set the fields RetryTimeout,
// StallTimeout and ChunkBytes of [Options]: "gs://bucket/run?patience=10m&chunk=67108864".
//
// # Guarantees
//
// Objects are written atomically. A Put with IfAbsent sends a precondition (on Google Cloud Storage
// ifGenerationMatch=0), so that exactly one of several writers succeeds. If the response is lost,
// the next attempt finds that the object exists. A random ID in the metadata of the object
// identifies the Put that wrote it. If it is the ID of this Put, the Put succeeds; otherwise the
// error matches [storage.ErrExists].
//
// Objects of up to 1 MiB are sent in one request, with their checksum. Larger objects are sent in
// chunks. On Google Cloud Storage the store compares the service's CRC-32C of the complete object
// with the CRC-32C of the bytes that it sent. If they differ, it removes the object and sends it
// again. Interrupted reads resume at the byte where they stopped. Reading an object that was
// replaced after it was opened is an error.
//
// # Retries
//
// The store retries after the statuses 408, 429, 500, 502, 503 and 504, refused or broken
// connections, truncated bodies, requests without progress for [Options].StallTimeout (1 minute),
// and checksum mismatches. It waits between 12 ms and 112 ms before the second attempt and about
// twice as long before each further attempt, up to 11 s. It gives up [Options].RetryTimeout (2
// minutes) after the first attempt of the operation began. The clients themselves do not retry,
// with these exceptions: Google's client retries a chunk of a large object for half of
// StallTimeout, so that one lost chunk does not restart the upload, and the clients of S3 and Azure
// try each request up to three times.
//
// The statuses 400, 401, 403, 404 and 412, unknown host names and unknown errors are not retried.
// Canceling the context stops every operation and every wait. Errors are of type [*Error], with the
// operation, the object, the [Reason], the number of attempts and a hint.
//
// # Memory
//
// A Put buffers up to 1 MiB of a small object and Options.ChunkBytes (16 MiB) of a large object; on
// S3 and Azure, which receive two chunks concurrently, up to three times ChunkBytes. An open object
// buffers its first 64 KiB. An upload of 1 GiB was measured with 16.6 MiB of buffers.
//
// # Leftovers
//
// An interrupted Put leaves no object. An interrupted save of a checkpoint leaves tensor files
// without the checkpoint's manifest, which a later save of package checkpoint removes. On Google
// Cloud Storage an interrupted upload is not charged and expires after a week. On S3 its parts
// remain until a lifecycle rule of the bucket removes them (see package s3).
//
// # Cost in requests
//
//	Put        1 class A operation (one upload, of however many chunks)
//	Open       1 class B operation, which also reads the first 64 KiB
//	ReadAt     1 class B operation, none within the first 64 KiB
//	List       1 class A operation for each thousand objects, at least 1
//	Remove     1 request without a charge
//	Open of a URL  1 class A operation, which finds a missing bucket or permission
//
// A save of N hosts costs 3N+2 class A operations (tensor files, their manifests, one marker per
// host for an incomplete checkpoint, the checkpoint's manifest, a listing), one more for each
// checkpoint that it removes, and two more for the first save of a run (a listing, the owner's
// record). It costs 2N class B operations, one more for each existing checkpoint, and at most one
// per second and host while host 0 waits for late hosts. A restore by M hosts costs M class A
// operations, M(2N+1) class B operations, and one class B operation for each range that a host's
// devices need. A test checks these numbers.
//
// Each retry costs the same again. A Put with IfAbsent that finds an existing object costs one more
// class B operation.
package blobstore
