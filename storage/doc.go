// Package storage holds objects under names: in a folder of this machine, or in an object store
// whose package the program imports. Checkpoints and the records of a run are kept so.
//
// # Objects
//
// A [Store] puts an object whole or not at all, also where the process is killed meanwhile. It can
// put an object only if none of that name is there, which is how two writers agree on one. It reads
// ranges of an object, lists names by what they begin with, and removes objects. It renames and
// locks nothing. Names are relative paths of "/"-separated elements, such as
// "step-0000000012/checkpoint.json"; see [CheckName].
//
//	store, err := storage.Open(ctx, "run/checkpoints") // or "gs://bucket/run", see below
//	defer store.Close()
//	err = storage.PutBytes(ctx, store, "status/host-0003.json", record, storage.PutOptions{})
//	all, err := store.List(ctx, "status/")
//
// # Places
//
// [Open] takes a folder's path or a URL. A URL's scheme belongs to a package that registered it when
// the program imported it ([Register]), as database/sql has drivers; this package imports none.
// Without the import, the error of Open says so.
//
// # A folder
//
// [Directory] keeps each object as a file. A file is written beside its place under a name that List
// leaves out, brought to the disk, and then linked to its name. Files of a process that was killed
// on the way stay behind: [Sweeper] removes them.
package storage
