// Package cache stores compiled programs in a directory, so that a program is compiled once and not
// in each process.
//
//	programs, err := cache.Open(dir, cache.Options{Logger: slog.Default()})
//	x, err := programs.Compile(ctx, client, program, opts)   // loads the program if it is cached
//
// A [Cache] is a [pjrt.Compiler], which can be passed to a strategy as strategy.Options.Compiler.
//
// # Cache keys
//
// The key of an entry is a hash of everything that a compiled program depends on: the program, its
// options, the device assignment, the devices, and the build of the plugin (see [pjrt.Client.Identity]).
//
// # Damaged entries
//
// An entry is created by renaming a complete file, and contains a checksum. If an entry is damaged,
// or the plugin cannot load it, the cache removes it, compiles the program again and logs a
// warning. Errors of the directory never make a compilation fail.
//
// # Concurrency
//
// Processes can share a directory. Two processes that need the same program at the same time both
// compile it, and the last one to finish replaces the entry.
//
// # Security
//
// Entries contain machine code. Each entry is signed (HMAC-SHA256) with a key that only the current
// user can read. An entry that was modified, or was created by another user or another machine, is
// not executed; the program is compiled again. The cache trusts the key, the plugin, and everyone
// who can read the user's files. The directory is created with access for its owner only. A
// directory that other users can write to is an error unless [Options].AllowSharedDir is set.
// Entries that are links, pipes or too large are not read.
//
// To share a cache between machines, use the same [Options].SigningKey on all of them.
package cache
