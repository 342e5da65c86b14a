// Package cache keeps compiled programs in a directory, so that a program is compiled once and not
// each time a process starts.
//
//	programs, err := cache.Open(dir, cache.Options{Logger: slog.Default()})
//	x, err := programs.Compile(ctx, client, program, opts)   // loads it if it is there
//
// A [Cache] can stand where a strategy compiles: see strategy.Options.
//
// # What an entry depends on
//
// Entries are found by a hash of everything that a compiled program depends on: the program and all
// of its options, the device assignment, the devices, and the plugin's build (see [Identity]).
// Another plugin, topology or assignment is another entry, so that nothing stale is ever loaded.
//
// # Damage
//
// An entry appears under its name by one rename, and carries a checksum of its contents. One that
// is damaged, or that the plugin refuses to load, is a miss: it is removed, the program is compiled
// again, and the logger says so. Trouble with the directory never fails a compilation.
//
// # Processes
//
// Any number of processes may share a directory. Two that need the same program at once both
// compile it; the entries are equal, and the last one stays.
//
// # Trust
//
// Entries hold machine code, which runs. Each is signed (HMAC-SHA256) with a key that only this
// user can read: an entry that was changed, was put there by somebody else, or comes from another
// machine is compiled again and not run. Trusted are the key, the plugin, and who can read the
// user's files. The directory is made for its owner alone; one that others can write to is refused,
// unless [Options].Shared is set. Entries that are links, pipes or of impossible sizes are not
// read.
//
// To share a cache between machines, give them all one [Options].Key.
package cache
