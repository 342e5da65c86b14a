// Package hostfacts reads properties of a machine that matter for TPU jobs: huge pages, memory, C
// library and kernel. It reads a few small files, opens no plugin and changes nothing.
//
//	facts := hostfacts.ReadFacts("")
//	for _, f := range facts.Findings() {
//		log.Print(f) // transparent huge pages: madvise; ...
//	}
//
// [ReadRequirements] returns the C library version that a program or a plugin requires. On machines with
// an older version, the program does not start, and the dynamic linker prints the name of a symbol.
package hostfacts
