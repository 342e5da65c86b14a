// Package hostfacts reads what a machine is like where a TPU job meets it on its first day: its
// huge pages, its memory, its C library, its kernel. It reads a few small files, opens no plugin and
// changes nothing.
//
//	facts := hostfacts.Read("")
//	for _, f := range facts.Findings() {
//		log.Print(f.Text())	// transparent huge pages: madvise; ...
//	}
//
// [NeedsOf] says which C library a program or a plugin was linked for. A program that is copied to
// machines with an older one does not start there, with a message of the dynamic linker that names
// a symbol.
package hostfacts
