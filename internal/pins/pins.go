package pins

import (
	_ "embed"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	"github.com/tpustrategy/tpustrategy/errkind"
)

// Pin is a pinned plugin build, a wheel from PyPI.
type Pin struct {
	// Kind is "cpu", "tpu", "cuda", or "cuda-tools" for the programs that the CUDA plugin executes.
	Kind string
	// GOARCH is the processor architecture of the wheel.
	GOARCH string
	// Package and Version identify the wheel.
	Package, Version string
	// SHA256 is the hexadecimal hash of the wheel. It is the name of the cache directory.
	SHA256 string
	// Library is the path of the shared library in the wheel. Header is the path of pjrt_c_api.h in
	// the wheel, or empty if the wheel does not contain it.
	Library, Header string
	// LibrarySHA256 is the hexadecimal hash of the shared library. If the file at LibraryPath has
	// another hash, it was modified or is incomplete.
	LibrarySHA256 string
}

//go:embed pins.tsv
var tableText string

// All returns all pins in the order of pins.tsv.
func All() []Pin {
	var pins []Pin
	for line := range strings.Lines(tableText) {
		f := strings.Split(strings.TrimSpace(line), "\t")
		if strings.HasPrefix(line, "#") || len(f) != 10 {
			continue
		}
		pins = append(pins, Pin{
			Kind: f[0], GOARCH: f[1], Package: f[3], Version: f[4], SHA256: f[5],
			Library: f[7], Header: strings.TrimPrefix(f[8], "-"), LibrarySHA256: f[9],
		})
	}
	return pins
}

// Find returns the pinned plugin of a kind, such as "tpu", for a GOARCH. The error states whether
// the kind or the architecture is unsupported.
func Find(kind, goarch string) (Pin, error) {
	all := All()
	i := slices.IndexFunc(all, func(p Pin) bool { return p.Kind == kind && p.GOARCH == goarch })
	if i >= 0 {
		return all[i], nil
	}
	if slices.ContainsFunc(all, func(p Pin) bool { return p.Kind == kind }) {
		return Pin{}, &errkind.Fault{Op: "pins", Class: errkind.NotFoundError,
			Reason: fmt.Sprintf("the %s plugin is not published for %s", kind, goarch)}
	}
	return Pin{}, &errkind.Fault{Op: "pins", Class: errkind.ValueError,
		Reason: fmt.Sprintf("no plugin kind %q", kind), Hint: `use "cpu", "tpu" or "cuda"`}
}

// Dir returns the directory of the installed wheel, <userCacheDir>/tpustrategy/plugins/<sha256>.
// userCacheDir is the result of os.UserCacheDir.
func (p Pin) Dir(userCacheDir string) string {
	return filepath.Join(userCacheDir, "tpustrategy", "plugins", p.SHA256)
}

// LibraryPath returns the path of the installed shared library. A library that executes other programs is
// in the subdirectory "plugin", because it searches for the programs in the parent of its own directory.
func (p Pin) LibraryPath(userCacheDir string) string {
	dir := p.Dir(userCacheDir)
	if _, err := Find(p.Kind+"-tools", p.GOARCH); err == nil {
		dir = filepath.Join(dir, "plugin")
	}
	return filepath.Join(dir, filepath.Base(p.Library))
}

// VerifiedSuffix is the suffix of the file that contains [Pin.VerifiedRecord]. The file is next to
// the installed library.
const VerifiedSuffix = ".verified"

// VerifiedRecord returns the hash, the size in bytes and the modification time of an installed
// library as text. The record is stored after the hash was verified. A library that matches its
// record is not hashed again. install.sh writes the same text.
func (p Pin) VerifiedRecord(info fs.FileInfo) string {
	t := info.ModTime()
	return fmt.Sprintf("%s %d %d.%09d", p.LibrarySHA256, info.Size(), t.Unix(), t.Nanosecond())
}

// HeaderPath returns the path of the installed pjrt_c_api.h, or "" if the wheel does not contain it.
func (p Pin) HeaderPath(userCacheDir string) string {
	if p.Header == "" {
		return ""
	}
	return filepath.Join(p.Dir(userCacheDir), filepath.Base(p.Header))
}
