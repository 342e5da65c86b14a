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

// FindOptions specifies where [FindPlugin] searches for a plugin. FindPlugin uses no other input.
type FindOptions struct {
	// Kind is "cpu", "tpu" or "cuda".
	Kind string
	// Path, if not empty, is the only path that FindPlugin checks.
	Path string
	// Getenv returns an environment variable, like os.Getenv. nil means that no variable is set.
	Getenv func(string) string
	// GOARCH is the architecture of the plugin, with the names of runtime.GOARCH.
	GOARCH string
	// UserCacheDir is the directory in which the installer stores plugins, as returned by
	// os.UserCacheDir. If it is empty, FindPlugin does not search there.
	UserCacheDir string
	// Stat returns information about a file, like os.Stat.
	Stat func(string) (fs.FileInfo, error)
}

// Candidate is a location that FindPlugin checked.
type Candidate struct {
	// Source is the rule that produced the path, such as "$TPU_LIBRARY_PATH".
	Source string
	// Path is the path that was checked. It is empty if the rule produced no path.
	Path string
	// Err is the reason why the candidate was rejected. It is nil for the plugin that was found.
	Err error
}

// Location describes the plugin that FindPlugin found, and the search for it.
type Location struct {
	// Path is the path of the plugin's library.
	Path string
	// Source is the rule that produced the path, such as "$TPU_LIBRARY_PATH".
	Source string
	// Tried are the candidates in the order of the search. The last one is the plugin.
	Tried []Candidate
}

// FindError reports that no plugin was found. It matches fs.ErrNotExist.
type FindError struct {
	// Plugin is the kind of the plugin: "cpu", "tpu" or "cuda".
	Plugin string
	// Tried are the candidates in the order of the search.
	Tried []Candidate
	// Hint suggests a correction.
	Hint string
}

// Error returns a message with the kind of the plugin, a hint, and one line per candidate.
func (e *FindError) Error() string {
	var b strings.Builder
	b.WriteString(errkind.Format("pjrt: find "+e.Plugin+" plugin", "none found", nil, e.Hint))
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

var errUnset = errors.New("not set")

// tpuPaths are the paths of libtpu in TPU VM images.
var tpuPaths = []string{"/lib/libtpu.so", "/usr/lib/libtpu.so", "/usr/local/lib/libtpu.so"}

// FindPlugin searches for a plugin library in this order: Path; $TPUSTRATEGY_CPU_PLUGIN (or
// $TPUSTRATEGY_TPU_PLUGIN, $TPUSTRATEGY_CUDA_PLUGIN); for a TPU, $TPU_LIBRARY_PATH; the installer's
// directory in UserCacheDir; for a TPU, /lib, /usr/lib and /usr/local/lib. If Path or a variable is
// set but not valid, FindPlugin returns an error and does not continue. The error is a [*FindError].
func FindPlugin(opts FindOptions) (Location, error) {
	hint, ok := map[string]string{
		"cpu":  "run `" + installCommand("cpu") + "`, or `make plugin` in a clone",
		"tpu":  "run `" + installCommand("tpu") + "`, or `make plugin-tpu` in a clone",
		"cuda": "run `" + installCommand("cuda") + "`, or set $TPUSTRATEGY_CUDA_PLUGIN to its path",
	}[opts.Kind]
	if !ok {
		return Location{}, optionError("Kind", `use "cpu", "tpu" or "cuda"`, "%q is not a kind of plugin", opts.Kind)
	}
	if opts.Stat == nil {
		return Location{}, optionError("Stat", "pass os.Stat", "it is nil")
	}
	getenv := opts.Getenv
	if getenv == nil {
		getenv = func(string) string { return "" }
	}
	var tried []Candidate
	try := func(source, path string) bool {
		info, err := fs.FileInfo(nil), files.CheckLocal(path)
		if err == nil {
			info, err = opts.Stat(path)
		}
		if cause := (*fs.PathError)(nil); errors.As(err, &cause) {
			err = cause.Err // without the path, which the candidate contains
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

	explicit := []Candidate{{Source: "Path", Path: opts.Path}}
	names := []string{"TPUSTRATEGY_" + strings.ToUpper(opts.Kind) + "_PLUGIN"}
	if opts.Kind == "tpu" {
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
		return Location{}, &FindError{Plugin: opts.Kind, Tried: tried,
			Hint: fmt.Sprintf("%s is %s: %v; correct or unset it", c.Source, c.Path, tried[len(tried)-1].Err)}
	}
	if pin, err := pins.Find(opts.Kind, opts.GOARCH); err != nil {
		tried = append(tried, Candidate{"installer", "", err})
		hint = fmt.Sprintf("set $%s to the path of a plugin for this machine", names[0])
	} else if opts.UserCacheDir == "" {
		err := errors.New("no user cache directory: neither $XDG_CACHE_HOME nor $HOME is an absolute path")
		tried = append(tried, Candidate{"installer", "", err})
		hint = fmt.Sprintf("set $HOME to find installed plugins, or set $%s to the path of a plugin; to install one, %s",
			names[0], hint)
	} else if try("installer", pin.LibraryPath(opts.UserCacheDir)) {
		return found()
	}
	if opts.Kind == "tpu" {
		for _, p := range tpuPaths {
			if try(filepath.Dir(p), p) {
				return found()
			}
		}
	}
	return Location{}, &FindError{Plugin: opts.Kind, Tried: tried, Hint: hint}
}
