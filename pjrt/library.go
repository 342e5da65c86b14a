package pjrt

import (
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
)

// machines maps GOARCH to the ELF machine and class of its libraries.
var machines = map[string]struct {
	machine elf.Machine
	class   elf.Class
}{
	"amd64": {elf.EM_X86_64, elf.ELFCLASS64},
	"arm64": {elf.EM_AARCH64, elf.ELFCLASS64},
}

// checkLibrary looks at a file before the dynamic loader does: the loader runs
// the constructors of whatever it maps, and a truncated library kills the
// process with a bus error.
func checkLibrary(path string) error {
	fail := func(r PluginReason, detail string, err error) error {
		return &PluginError{Path: path, Reason: r, Detail: detail, Err: err}
	}
	info, err := os.Stat(path)
	if err != nil {
		return fail(PluginMissing, "", err)
	}
	if !info.Mode().IsRegular() {
		return fail(PluginNotFile, info.Mode().Type().String(), nil)
	}
	f, err := os.Open(path)
	if err != nil {
		return fail(PluginMissing, "", err)
	}
	defer f.Close()
	if runtime.GOOS != "linux" {
		return nil
	}
	if info.Size() == 0 {
		return fail(PluginNotLibrary, "the file is empty", nil)
	}
	var magic [4]byte
	if _, err := io.ReadFull(f, magic[:]); err != nil || string(magic[:]) != elf.ELFMAG {
		return fail(PluginNotLibrary, fmt.Sprintf("the file starts with %q, not the ELF magic", magic[:]), nil)
	}
	e, err := elf.NewFile(f)
	if err != nil {
		return fail(PluginTruncated, "", err)
	}
	if want, ok := machines[runtime.GOARCH]; ok && (e.Machine != want.machine || e.Class != want.class) {
		return fail(PluginWrongArch, fmt.Sprintf("%v, this process needs %v", e.Machine, want.machine), nil)
	}
	if e.Type != elf.ET_DYN {
		return fail(PluginNotLibrary, fmt.Sprintf("ELF type %v, not a shared object", e.Type), nil)
	}
	for _, p := range e.Progs {
		if end := p.Off + p.Filesz; end < p.Off || end > uint64(info.Size()) {
			return fail(PluginTruncated, fmt.Sprintf("a segment ends at byte %d, the file at %d", end, info.Size()), nil)
		}
	}
	symbols, err := e.DynamicSymbols()
	switch {
	case errors.Is(err, elf.ErrNoSymbols):
		return nil // section headers stripped: the loader will tell
	case err != nil:
		return fail(PluginTruncated, "symbol table", err)
	}
	for _, s := range symbols {
		if s.Name == "GetPjrtApi" && s.Section != elf.SHN_UNDEF {
			return nil
		}
	}
	return fail(PluginNoEntry, "it does not export GetPjrtApi", nil)
}
