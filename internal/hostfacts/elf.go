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

// Needs are the requirements of a program or library.
type Needs struct {
	// CLibrary is the oldest sufficient version of the GNU C library, such as 2.34. It is empty if
	// the file does not use the library.
	CLibrary string `json:"c_library,omitempty"`
	// Machine is the architecture, such as x86-64 or aarch64.
	Machine string `json:"machine"`
	// Static is true if the file uses no shared library.
	Static bool `json:"static,omitempty"`
}

// glibc is the prefix of symbol versions of the GNU C library. It is written in two parts so that
// this program does not contain the prefix itself, which would mislead searches of its bytes.
const glibc = "GLI" + "BC_"

// NeedsOf returns the requirements of an ELF file. For other files, the error matches [ErrNotELF].
func NeedsOf(path string) (Needs, error) {
	file, _, err := files.Open(path)
	if err != nil {
		return Needs{}, err
	}
	defer file.Close()
	f, err := elf.NewFile(file)
	var format *elf.FormatError
	if errors.As(err, &format) {
		return Needs{}, fmt.Errorf("%s: %w", path, ErrNotELF)
	}
	if err != nil {
		return Needs{}, err
	}
	needs := Needs{Machine: strings.ToLower(strings.TrimPrefix(f.Machine.String(), "EM_"))}
	if f.Machine == elf.EM_X86_64 {
		needs.Machine = "x86-64"
	}
	libraries, err := f.ImportedLibraries()
	if err != nil {
		return Needs{}, fmt.Errorf("%s: its libraries: %w", path, err)
	}
	needs.Static = len(libraries) == 0
	versions, err := f.DynamicVersionNeeds()
	if err != nil && !needs.Static {
		return Needs{}, fmt.Errorf("%s: the versions that it needs: %w", path, err)
	}
	for _, library := range versions {
		for _, need := range library.Needs {
			if v, ok := strings.CutPrefix(need.Dep, glibc); ok && Older(needs.CLibrary, v) {
				needs.CLibrary = v
			}
		}
	}
	return needs, nil
}

// Older reports whether version a is older than version b. The empty version is older than all
// others. A string that is not a version, such as PRIVATE, is not newer than any version.
func Older(a, b string) bool {
	x, y := parts(a), parts(b)
	return y != nil && slices.CompareFunc(x, y, cmp.Compare[int]) < 0
}

func parts(version string) []int {
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

// cLibrary returns the newest symbol version of the machine's C library.
func cLibrary(root string) string {
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
	for _, each := range versions {
		if v, ok := strings.CutPrefix(each.Name, glibc); ok && Older(newest, v) {
			newest = v
		}
	}
	return newest
}
