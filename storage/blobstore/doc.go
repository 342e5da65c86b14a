// Package blobstore keeps the objects of package storage in an object store: Google Cloud Storage,
// S3, Azure, or whatever gocloud.dev/blob has a driver for. It is a module of its own, so that who
// keeps checkpoints in folders does not get its dependencies.
//
// # A bucket by its URL
//
// A program imports the package of its service, and [storage.Open] takes the service's URLs:
//
//	import _ "github.com/tpustrategy/tpustrategy/storage/blobstore/gcs" // gs://bucket/run
//
//	store, err := storage.Open(ctx, "gs://bucket/run")
//
// There are gcs (gs://), s3 (s3://), azure (azblob://) and mem (mem://, for tests). Each brings the
// client of its own service and of no other. A bucket that the program opened itself becomes a store
// by [New]; for Google Cloud Storage use gcs.New, which also compares checksums.
//
// Commands and examples of the core module get an object store by a build flag: see package drivers.
//
// URLs take the parameters patience, stall and chunk, which are the fields of [Options]:
// "gs://bucket/run?patience=10m&chunk=67108864".
//
// # What a store promises
//
// An object appears whole or not at all. A Put with IfAbsent carries a precondition (on Google Cloud
// Storage ifGenerationMatch=0), so that of several writers one succeeds. If its answer is lost, the
// next attempt finds the object there, and a random mark in its metadata says whose it is: one's own
// is success, another's an error that matches [storage.ErrExists].
//
// Objects of up to 1 MiB are sent in one request, with their checksum. Larger ones are sent in
// chunks. On Google Cloud Storage the store compares the service's CRC-32C of the whole object with
// that of the bytes it sent; what differs is removed and sent again. Reads go on where they broke
// off. An object that is replaced while it is open is an error, not a mixture.
//
// # What is tried again
//
// The store, and not the client, tries again: after 408, 429, 500, 502, 503, 504, a connection that
// is refused, reset or cut, a body that ends early, a request in which nothing moves for
// [Options].Stall (1 minute), and bytes that arrived as others. It waits between 12 ms and 112 ms
// before the second attempt, about twice as long before each further one, up to 10 s, and gives up
// [Options].Patience (2 minutes) after the first attempt began; each operation has a clock of its
// own. The one exception is a chunk of a large object, which Google's client repeats for half of
// Stall, so that one lost chunk is not the whole upload. The clients of S3 and Azure try each
// request up to three times of their own, before the store does.
//
// Not tried again are 400, 401, 403, 404, 412, wrong names of hosts, and whatever the store does not
// know. A context ends every operation, every wait and every attempt. The error is an [*Error]: it
// names the operation, the object and the [Reason], says how often it was tried, and what to do.
//
// # Memory
//
// A Put holds up to 1 MiB of a small object, and Options.ChunkBytes (16 MiB) of a large one; S3 and
// Azure, which get two chunks at a time, up to three times that. A read holds 64 KiB and what the
// caller gave. A listing holds its names. Measured: 1 GiB is uploaded with 16.6 MiB held.
//
// # Leftovers
//
// An object that was not put whole is not there. A save that died leaves whole tensor files without
// a checkpoint's manifest, and the word that there is none: a later save of package checkpoint finds and removes them, however many
// saves died before. On Google Cloud Storage an upload that was cut off costs nothing and ends after
// a week; on S3 its parts stay until a lifecycle rule of the bucket removes them (see package s3).
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
// So a save of N hosts costs 3N+2 operations of class A (tensor files, their manifests, a word of each
// host that there is no checkpoint yet, the checkpoint's manifest, a listing), one more for each
// checkpoint that it removes, and two more for the first save of a run (a listing, the owner's
// record). It costs 2N of class B, one more for each checkpoint that is there, and those with which
// host 0 asks for parts that are late, at most one a second and host. A restore by M hosts costs M of
// class A and M(2N+1) of class B, and one for each range that a host's devices need. A test holds
// checkpoints to these numbers.
//
// An attempt that is repeated costs again. A Put with IfAbsent that finds the object costs 1 class B
// operation more.
package blobstore
