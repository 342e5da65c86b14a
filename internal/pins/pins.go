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

// Pin is one pinned plugin build, as a wheel on PyPI.
type Pin struct {
	// Kind is "cpu", "tpu" or "cuda", or of the programs that one of them calls "cuda-tools".
	Kind string
	// GOARCH is the machine kind that the wheel is for.
	GOARCH string
	// Package and Version name the wheel exactly.
	Package, Version string
	// SHA256 is the wheel's hash in hex. It keys the cache directory, so that clones share one copy
	// and a new pin never meets an old file.
	SHA256 string
	// Library is the path of the shared library inside the wheel, and Header that of the wheel's
	// own pjrt_c_api.h, empty if it ships none.
	Library, Header string
	// LibrarySHA256 is the hash of the shared library in hex: a file at LibraryPath with another
	// hash is not what the installer put there.
	LibrarySHA256 string
}

//go:embed pins.tsv
var table string

// All returns every pin, in the order of the table.
func All() []Pin {
	var pins []Pin
	for line := range strings.Lines(table) {
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

// For returns the pin of a plugin kind on a machine kind (a GOARCH). The error says what there is
// instead.
func For(kind, goarch string) (Pin, error) {
	all := All()
	i := slices.IndexFunc(all, func(p Pin) bool { return p.Kind == kind && p.GOARCH == goarch })
	if i >= 0 {
		return all[i], nil
	}
	if slices.ContainsFunc(all, func(p Pin) bool { return p.Kind == kind }) {
		return Pin{}, &errkind.Fault{Op: "pins", Reason: fmt.Sprintf("the %s plugin is not published for %s", kind, goarch), Class: errkind.NotFoundError}
	}
	return Pin{}, &errkind.Fault{Op: "pins", Reason: fmt.Sprintf("no plugin kind %q", kind), Hint: `there are "cpu", "tpu" and "cuda"`, Class: errkind.ValueError}
}

// Dir returns the pin's directory, <user cache>/tpustrategy/plugins/<sha256>, where userCacheDir is
// what os.UserCacheDir returns.
func (p Pin) Dir(userCacheDir string) string {
	return filepath.Join(userCacheDir, "tpustrategy", "plugins", p.SHA256)
}

// LibraryPath returns where the installer puts the shared library: of one that calls other programs in
// a folder of its own, beside which they are.
func (p Pin) LibraryPath(userCacheDir string) string {
	dir := p.Dir(userCacheDir)
	if _, err := For(p.Kind+"-tools", p.GOARCH); err == nil {
		dir = filepath.Join(dir, "plugin")
	}
	return filepath.Join(dir, filepath.Base(p.Library))
}

// RecordSuffix follows the name of an installed library in the name of its record, which contains the text
// of [Pin.Record].
const RecordSuffix = ".verified"

// Record returns the hash, the size in bytes and the modification time of an installed library whose hash
// was verified. While the record matches the file, the file is not hashed again. install.sh writes the
// same text.
func (p Pin) Record(info fs.FileInfo) string {
	t := info.ModTime()
	return fmt.Sprintf("%s %d %d.%09d", p.LibrarySHA256, info.Size(), t.Unix(), t.Nanosecond())
}

// HeaderPath returns where the installer puts the wheel's pjrt_c_api.h, or "" if the wheel ships
// none.
func (p Pin) HeaderPath(userCacheDir string) string {
	if p.Header == "" {
		return ""
	}
	return filepath.Join(p.Dir(userCacheDir), filepath.Base(p.Header))
}
