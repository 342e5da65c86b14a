// Package storage stores named objects in a local folder, or in an object store whose package the
// program imports. It is used for checkpoints and the records of a run.
//
// # Objects
//
// A [Store] writes objects atomically: an object is stored completely or not at all, even if the
// process is killed. It can write an object on the condition that no object of that name exists, so
// that only one of two writers succeeds. It reads ranges of objects, lists objects by a prefix of
// their names, and removes objects. It has no operations to rename or lock objects. Names are
// relative paths of "/"-separated elements, such as "step-0000000012/checkpoint.json"; see
// [CheckName].
//
//	store, err := storage.Open(ctx, "run/checkpoints") // or "gs://bucket/run", see below
//	defer store.Close()
//	err = storage.PutBytes(ctx, store, "status/host-0003.json", record, storage.PutOptions{})
//	all, err := store.List(ctx, "status/")
//
// # Places
//
// [Open] accepts the path of a folder or a URL. Packages register URL schemes with [Register] when
// they are imported, like the drivers of database/sql. This package imports none of them. If the
// scheme is not registered, the error of Open names the package to import.
//
// # A folder
//
// [Directory] stores each object as a file. It writes a temporary file in the same folder, which
// List omits, syncs it to disk, and then renames it or, with [PutOptions].IfAbsent, links it to its
// name. A process that is killed while it writes leaves a temporary file, which [Sweeper] removes.
package storage
