package hostfacts

import (
	"cmp"
	"debug/elf"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/tpustrategy/tpustrategy/internal/files"
)

// Requirements contains the properties of the machine that a program or library requires.
type Requirements struct {
	// CLibrary is the minimum version of the GNU C library, such as 2.34. It is empty if the file
	// does not use the library.
	CLibrary string `json:"c_library,omitempty"`
	// Machine is the architecture, such as x86-64 or aarch64.
	Machine string `json:"machine"`
	// Static is true if the file uses no shared library.
	Static bool `json:"static,omitempty"`
}

// glibcPrefix is the prefix of symbol versions of the GNU C library. It is written in two parts so
// that this program does not contain the prefix itself, which would mislead searches of its bytes.
const glibcPrefix = "GLI" + "BC_"

// ReadRequirements returns the requirements of an ELF file. For other files, the error matches
// [ErrNotELF].
func ReadRequirements(path string) (Requirements, error) {
	file, _, err := files.Open(path)
	if err != nil {
		return Requirements{}, err
	}
	defer file.Close()
	f, err := elf.NewFile(file)
	var format *elf.FormatError
	if errors.As(err, &format) {
		return Requirements{}, fmt.Errorf("%s: %w", path, ErrNotELF)
	}
	if err != nil {
		return Requirements{}, err
	}
	needs := Requirements{Machine: strings.ToLower(strings.TrimPrefix(f.Machine.String(), "EM_"))}
	if f.Machine == elf.EM_X86_64 {
		needs.Machine = "x86-64"
	}
	libraries, err := f.ImportedLibraries()
	if err != nil {
		return Requirements{}, fmt.Errorf("%s: its libraries: %w", path, err)
	}
	needs.Static = len(libraries) == 0
	versions, err := f.DynamicVersionNeeds()
	if err != nil && !needs.Static {
		return Requirements{}, fmt.Errorf("%s: the versions that it needs: %w", path, err)
	}
	for _, library := range versions {
		for _, need := range library.Needs {
			if v, ok := strings.CutPrefix(need.Dep, glibcPrefix); ok && IsOlderVersion(needs.CLibrary, v) {
				needs.CLibrary = v
			}
		}
	}
	return needs, nil
}

// IsOlderVersion reports whether version a is older than version b. The empty version is older than
// all others. If b is not a version number, such as PRIVATE, the result is false.
func IsOlderVersion(a, b string) bool {
	x, y := parseVersion(a), parseVersion(b)
	return y != nil && slices.CompareFunc(x, y, cmp.Compare[int]) < 0
}

func parseVersion(version string) []int {
	var list []int
	for part := range strings.SplitSeq(version, ".") {
		n, err := strconv.Atoi(part)
		if err != nil {
			return nil
		}
		list = append(list, n)
	}
	return list
}

// cLibraryVersion returns the version of the machine's C library, or an empty string if it is
// unknown. It is the newest version of the library's symbols.
func cLibraryVersion(root string) string {
	for _, pattern := range []string{"/lib/*-linux-gnu/libc.so.6", "/lib64/libc.so.6", "/usr/lib/*-linux-gnu/libc.so.6",
		"/usr/lib64/libc.so.6", "/usr/lib/libc.so.6"} {
		found, _ := filepath.Glob(filepath.Join(root, pattern)) // the patterns are well formed
		for _, path := range found {
			if v := newestDefinedVersion(path); v != "" {
				return v
			}
		}
	}
	return ""
}

func newestDefinedVersion(path string) (newest string) {
	file, _, err := files.Open(path)
	if err != nil {
		return ""
	}
	defer file.Close()
	f, err := elf.NewFile(file)
	if err != nil {
		return ""
	}
	versions, err := f.DynamicVersions()
	if err != nil {
		return ""
	}
	for _, version := range versions {
		if v, ok := strings.CutPrefix(version.Name, glibcPrefix); ok && IsOlderVersion(newest, v) {
			newest = v
		}
	}
	return newest
}
