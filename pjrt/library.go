package pjrt

import (
	"crypto/sha256"
	"debug/elf"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/tpustrategy/tpustrategy/internal/files"
)

// machines maps GOARCH to the ELF machine of its libraries, all of which are of 64 bits.
var machines = map[string]elf.Machine{"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64}

// OpenOptions say which files are opened as plugins. The zero value trusts root's files and those
// of the process's own user.
type OpenOptions struct {
	// SHA256 is the library's hash in hexadecimal digits; another library is refused. It reads the
	// whole file: about a second for libtpu. "" takes any.
	SHA256 string
	// Owners are the ids of further users whose files, folders and links are trusted: those of a
	// build user, say, where the program runs as root.
	Owners []int
}

// Inspect makes all the checks of [Open] without loading anything, and returns the library's
// absolute path without links. The file must be a regular one. It, each folder on the way to it and
// each link that leads there must belong to root, to the user of this process or to one of Owners,
// and others may not write to it; a group may, if it is one of the system's or the process is in
// it. A folder like /tmp, with the sticky bit, is passed. What is refused is a [*PluginError] that
// says what to change: with PluginUntrusted its cause is a [*PathError].
func Inspect(path string, opts ...OpenOptions) (string, error) {
	if len(opts) > 1 {
		return "", option("OpenOptions", "give one", "%d of them", len(opts))
	}
	var o OpenOptions
	if len(opts) > 0 {
		o = opts[0]
	}
	real, err := files.Trust{Owners: o.Owners}.OfProcess().File(path)
	if err != nil {
		if full, err := filepath.Abs(path); err == nil {
			path = full
		}
		reason := PluginMissing
		if wrong := (*PathError)(nil); errors.As(err, &wrong) {
			switch wrong.Reason {
			case files.NotRegular:
				reason = PluginNotFile
			case files.Foreign, files.Writable:
				reason = PluginUntrusted
			}
		}
		return "", pluginError(path, reason, "", err)
	}
	if err := checkLibrary(real); err != nil {
		return "", err
	}
	if o.SHA256 == "" {
		return real, nil
	}
	found, err := hashOf(real)
	if err != nil {
		return "", pluginError(real, PluginMissing, "", err)
	}
	if !strings.EqualFold(found, o.SHA256) {
		return "", pluginError(real, PluginChanged, fmt.Sprintf("its SHA-256 is %s, not %s", found, o.SHA256), nil)
	}
	return real, nil
}

// hashOf is a file's SHA-256 in hexadecimal digits.
func hashOf(path string) (string, error) {
	f, _, err := files.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	hash := sha256.New()
	if _, err := io.Copy(hash, f); err != nil {
		return "", err
	}
	return hex.EncodeToString(hash.Sum(nil)), nil
}

// checkLibrary looks at a file before the dynamic loader does: the loader runs the constructors of
// whatever it maps, and a truncated library kills the process with a bus error.
func checkLibrary(path string) error {
	wrong := func(r PluginReason, detail string, err error) error { return pluginError(path, r, detail, err) }
	f, info, err := files.Open(path)
	if err != nil {
		return wrong(PluginMissing, "", err)
	}
	defer f.Close()
	if runtime.GOOS != "linux" {
		return nil
	}
	if info.Size() == 0 {
		return wrong(PluginNotLibrary, "the file is empty", nil)
	}
	var magic [4]byte
	if _, err := io.ReadFull(f, magic[:]); err != nil || string(magic[:]) != elf.ELFMAG {
		return wrong(PluginNotLibrary, fmt.Sprintf("the file starts with %q, not the ELF magic", magic[:]), nil)
	}
	e, err := elf.NewFile(f)
	if err != nil {
		return wrong(PluginTruncated, "", err)
	}
	if want, ok := machines[runtime.GOARCH]; ok && (e.Machine != want || e.Class != elf.ELFCLASS64) {
		return wrong(PluginWrongArch, fmt.Sprintf("%v, this process needs %v", e.Machine, want), nil)
	}
	if e.Type != elf.ET_DYN {
		return wrong(PluginNotLibrary, fmt.Sprintf("ELF type %v, not a shared object", e.Type), nil)
	}
	for _, p := range e.Progs {
		if end := p.Off + p.Filesz; end < p.Off || end > uint64(info.Size()) {
			return wrong(PluginTruncated, fmt.Sprintf("a segment ends at byte %d, the file at %d", end, info.Size()), nil)
		}
	}
	symbols, err := e.DynamicSymbols()
	switch {
	case errors.Is(err, elf.ErrNoSymbols):
		return nil // section headers stripped: the loader will tell
	case err != nil:
		return wrong(PluginTruncated, "symbol table", err)
	}
	for _, s := range symbols {
		if s.Name == "GetPjrtApi" && s.Section != elf.SHN_UNDEF {
			return nil
		}
	}
	return wrong(PluginNoEntry, "it does not export GetPjrtApi", nil)
}
