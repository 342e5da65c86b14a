package pjrt

import (
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/tpustrategy/tpustrategy/internal/files"
)

// elfMachines maps a GOARCH to the ELF machine of its libraries. All have 64 bits.
var elfMachines = map[string]elf.Machine{"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64}

// OpenOptions specifies which files can be opened as plugins. The zero value trusts the files of
// root and of the current user.
type OpenOptions struct {
	// SHA256, if not empty, is the required hash of the library in hexadecimal digits. Checking it
	// reads the complete file, which costs about a second for libtpu.
	SHA256 string
	// Owners are the ids of other users whose files, directories and links are trusted, such as a
	// build user if the program runs as root.
	Owners []int
}

// VerifyPlugin performs all checks of [Open] without loading the library. It returns the absolute
// path of the library without symbolic links. The error is a [*PluginError] with a correction.
//
// path must be a regular file. The file, each directory in its path and each link must be owned by
// root, by the user of this process or by one of Owners, and must not be writable by other users. A
// group may have write permission if it is a system group or the process is a member of it.
// Directories with the sticky bit, such as /tmp, are accepted. If this check fails, the reason is
// PluginUntrusted, and the cause is a [*PathError].
//
// A library that the install command has stored in the user's cache directory must be unchanged;
// otherwise the reason is PluginDamaged. VerifyPlugin hashes such a library only if its size or its
// modification time has changed.
func VerifyPlugin(path string, opts ...OpenOptions) (string, error) {
	if len(opts) > 1 {
		return "", optionError("OpenOptions", "pass at most one", "there are %d", len(opts))
	}
	var o OpenOptions
	if len(opts) > 0 {
		o = opts[0]
	}
	realPath, err := files.Trust{Owners: o.Owners}.WithProcess().CheckFile(path)
	if err != nil {
		if full, err := filepath.Abs(path); err == nil {
			path = full
		}
		reason := PluginMissing
		if pathErr := (*PathError)(nil); errors.As(err, &pathErr) {
			switch pathErr.Reason {
			case files.NotRegular:
				reason = PluginNotFile
			case files.OtherOwner, files.OthersCanWrite:
				reason = PluginUntrusted
			}
		}
		return "", pluginError(path, reason, "", err)
	}
	if err := checkInstalled(realPath); err != nil {
		return "", err
	}
	if err := checkLibrary(realPath); err != nil {
		return "", err
	}
	if o.SHA256 == "" {
		return realPath, nil
	}
	found, err := files.SHA256(realPath)
	if err != nil {
		return "", pluginError(realPath, PluginMissing, "", err)
	}
	if !strings.EqualFold(found, o.SHA256) {
		return "", pluginError(realPath, PluginChanged, fmt.Sprintf("its SHA-256 is %s, not %s", found, o.SHA256), nil)
	}
	return realPath, nil
}

// checkLibrary checks that a file is a complete shared library for this architecture, before the
// dynamic loader opens it. The loader executes constructors of the library, and a truncated library
// would crash the process.
func checkLibrary(path string) error {
	fail := func(r PluginReason, detail string, err error) error { return pluginError(path, r, detail, err) }
	f, info, err := files.Open(path)
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
	if want, ok := elfMachines[runtime.GOARCH]; ok && (e.Machine != want || e.Class != elf.ELFCLASS64) {
		return fail(PluginWrongArch, fmt.Sprintf("its architecture is %v, but this process requires %v", e.Machine,
			want), nil)
	}
	if e.Type != elf.ET_DYN {
		return fail(PluginNotLibrary, fmt.Sprintf("its ELF type is %v, not a shared object", e.Type), nil)
	}
	for _, p := range e.Progs {
		if end := p.Off + p.Filesz; end < p.Off || end > uint64(info.Size()) {
			return fail(PluginTruncated, fmt.Sprintf("a segment ends at byte %d, the file at %d", end, info.Size()),
				nil)
		}
	}
	symbols, err := e.DynamicSymbols()
	switch {
	case errors.Is(err, elf.ErrNoSymbols):
		return nil // without section headers, only the loader can check the symbol
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
