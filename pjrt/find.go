package pjrt

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/internal/files"
	"github.com/tpustrategy/tpustrategy/internal/pins"
)

// FindOptions say where to look for a plugin. Find reads nothing else.
type FindOptions struct {
	// Kind is "cpu", "tpu" or "cuda".
	Kind string
	// Path, if it is set, is taken and nothing else is looked at.
	Path string
	// Getenv reads the environment, as os.Getenv; nil means that nothing is set.
	Getenv func(string) string
	// GOARCH is the kind of machine to find a plugin for, as runtime.GOARCH names it.
	GOARCH string
	// UserCacheDir is the folder in which the installer keeps plugins, as os.UserCacheDir returns
	// it; if it is empty, that place is skipped.
	UserCacheDir string
	// Stat looks at a file, as os.Stat does.
	Stat func(string) (fs.FileInfo, error)
}

// Candidate is a place that Find looked at.
type Candidate struct {
	// Source names the rule, such as "$TPU_LIBRARY_PATH".
	Source string
	// Path is where the rule leads; it is empty where the rule names no file.
	Path string
	// Err says why the candidate was passed over; it is nil for the plugin that was found.
	Err error
}

// Location says where a plugin is.
type Location struct {
	// Path is the plugin's library.
	Path string
	// Source names the rule that led there, such as "$TPU_LIBRARY_PATH".
	Source string
	// Tried are the places that were looked at, in order, the plugin's own last.
	Tried []Candidate
}

// FindError reports that no plugin was found. It matches fs.ErrNotExist.
type FindError struct {
	// Plugin is what was looked for: "cpu", "tpu" or "cuda".
	Plugin string
	// Tried are the places that were looked at, in order.
	Tried []Candidate
	// Hint says what to do.
	Hint string
}

// Error returns what was looked for and what to do, and a line for each place that was tried.
func (e *FindError) Error() string {
	var b strings.Builder
	b.WriteString(errkind.Text("pjrt: find "+e.Plugin+" plugin", "none found", nil, e.Hint))
	for _, c := range e.Tried {
		fmt.Fprintf(&b, "\n\t%s: ", c.Source)
		if c.Path != "" {
			fmt.Fprintf(&b, "%s: ", c.Path)
		}
		b.WriteString(c.Err.Error())
	}
	return b.String()
}

// Kind returns NotFoundError.
func (*FindError) Kind() errkind.Kind { return errkind.NotFoundError }

// Unwrap returns fs.ErrNotExist.
func (e *FindError) Unwrap() error { return fs.ErrNotExist }

// errUnset is why a variable was passed over.
var errUnset = errors.New("not set")

// tpuPlaces are where TPU VM images keep libtpu.
var tpuPlaces = []string{"/lib/libtpu.so", "/usr/lib/libtpu.so", "/usr/local/lib/libtpu.so"}

// Find looks for a plugin library, in this order: Path; $TPUSTRATEGY_CPU_PLUGIN (or _TPU_, _CUDA_);
// for a TPU $TPU_LIBRARY_PATH; the installer's place under UserCacheDir; for a TPU /lib, /usr/lib
// and /usr/local/lib. A Path or a variable that is set and wrong is an error: it is not passed
// over. If no plugin is found, the error is a [*FindError].
func Find(o FindOptions) (Location, error) {
	hint, ok := map[string]string{
		"cpu":  "run `go run -mod=mod github.com/tpustrategy/tpustrategy/cmd/tpustrategy install cpu`, or `make plugin` in a clone",
		"tpu":  "run `go run -mod=mod github.com/tpustrategy/tpustrategy/cmd/tpustrategy install tpu`, or `make plugin-tpu` in a clone",
		"cuda": "run `go run -mod=mod github.com/tpustrategy/tpustrategy/cmd/tpustrategy install cuda`, or set $TPUSTRATEGY_CUDA_PLUGIN to its path",
	}[o.Kind]
	if !ok {
		return Location{}, option("Kind", `use "cpu", "tpu" or "cuda"`, "%q is no kind of plugin", o.Kind)
	}
	if o.Stat == nil {
		return Location{}, option("Stat", "pass os.Stat", "it is nil")
	}
	getenv := o.Getenv
	if getenv == nil {
		getenv = func(string) string { return "" }
	}
	var tried []Candidate
	try := func(source, path string) bool {
		info, err := fs.FileInfo(nil), files.Local(path)
		if err == nil {
			info, err = o.Stat(path)
		}
		if cause := (*fs.PathError)(nil); errors.As(err, &cause) {
			err = cause.Err // the candidate has the path
		}
		if err == nil && !info.Mode().IsRegular() {
			err = errors.New("not a regular file")
		}
		tried = append(tried, Candidate{source, path, err})
		return err == nil
	}
	found := func() (Location, error) {
		last := tried[len(tried)-1]
		return Location{Path: last.Path, Source: last.Source, Tried: tried}, nil
	}

	explicit := []Candidate{{Source: "Path", Path: o.Path}}
	names := []string{"TPUSTRATEGY_" + strings.ToUpper(o.Kind) + "_PLUGIN"}
	if o.Kind == "tpu" {
		names = append(names, "TPU_LIBRARY_PATH")
	}
	for _, name := range names {
		explicit = append(explicit, Candidate{Source: "$" + name, Path: getenv(name)})
	}
	for _, c := range explicit {
		if c.Path == "" {
			tried = append(tried, Candidate{c.Source, "", errUnset})
			continue
		}
		if try(c.Source, c.Path) {
			return found()
		}
		return Location{}, &FindError{Plugin: o.Kind, Tried: tried, Hint: fmt.Sprintf("%s is %s: %v; correct or unset it", c.Source, c.Path, tried[len(tried)-1].Err)}
	}
	if pin, err := pins.For(o.Kind, o.GOARCH); err != nil {
		tried = append(tried, Candidate{"installer", "", err})
		hint = fmt.Sprintf("set $%s to the path of one that was made for this machine", names[0])
	} else if o.UserCacheDir == "" {
		tried = append(tried, Candidate{"installer", "", errors.New("no user cache directory: neither $XDG_CACHE_HOME nor $HOME is an absolute path")})
		hint = fmt.Sprintf("set $HOME, where plugins are installed, or $%s to a plugin's path; then, if there is none, %s", names[0], hint)
	} else if try("installer", pin.LibraryPath(o.UserCacheDir)) {
		return found()
	}
	if o.Kind == "tpu" {
		for _, p := range tpuPlaces {
			if try(filepath.Dir(p), p) {
				return found()
			}
		}
	}
	return Location{}, &FindError{Plugin: o.Kind, Tried: tried, Hint: hint}
}
