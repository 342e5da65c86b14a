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

// Needs is what a program or library needs of the machine that it is copied to.
type Needs struct {
	// CLibrary is the oldest version of the GNU C library that has all that the file uses, such as
	// 2.34; empty for a file that uses none of it.
	CLibrary string `json:"c_library,omitempty"`
	// Machine is the processor, such as x86-64 or aarch64.
	Machine string `json:"machine"`
	// Static says that the file is linked to no library.
	Static bool `json:"static,omitempty"`
}

// glibc is the prefix of the C library's symbol versions. It is in two parts so that a search of
// this program's own bytes for such versions finds only what it needs.
const glibc = "GLI" + "BC_"

// NeedsOf reads what an ELF file needs. A file of another kind matches [ErrNotELF].
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

// Older says whether version a comes before version b; the empty version comes before all. What is
// not a version, such as PRIVATE, comes after none.
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

// cLibrary is the newest version that the machine's C library defines.
func cLibrary(root string) string {
	for _, pattern := range []string{"/lib/*-linux-gnu/libc.so.6", "/lib64/libc.so.6", "/usr/lib/*-linux-gnu/libc.so.6", "/usr/lib64/libc.so.6", "/usr/lib/libc.so.6"} {
		found, _ := filepath.Glob(filepath.Join(root, pattern)) // the patterns are well formed
		for _, path := range found {
			if v := defined(path); v != "" {
				return v
			}
		}
	}
	return ""
}

func defined(path string) (newest string) {
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
