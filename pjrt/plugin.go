package pjrt

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/tpustrategy/tpustrategy/pjrt/internal/capi"
)

// Version is a version of the PJRT C API.
type Version struct{ Major, Minor int }

// String returns a text such as "0.81".
func (v Version) String() string { return fmt.Sprintf("%d.%d", v.Major, v.Minor) }

// Plugin is a loaded and initialized PJRT plugin. It is safe for concurrent use, and has no Close:
// a plugin stays loaded for the rest of the process, because unmapping code that its threads and
// handles still use would crash.
type Plugin struct {
	api        *capi.API
	path       string
	attributes map[string]any
}

// opened holds the plugins of the process. A library can be mapped and initialized only once per
// process, so this is the loader's state, not ours.
var opened struct {
	sync.Mutex
	plugins []*Plugin
}

// Open loads the plugin library at path, checks that it speaks an API version that this package
// knows (0.57 or newer), and initializes it. A file that is opened twice, also by another name, is
// loaded once, and both calls return the same Plugin.
//
// A file that is missing, no library, cut short, for another machine, no PJRT plugin or too old
// gives a [*PluginError]. Loading runs the library's own initializers, so each Open first makes
// sure that nobody but root, this user and [OpenOptions].Owners can put another library there: see
// [Inspect]. The loader gets the absolute path without links. It takes from milliseconds to about a
// second.
//
// At most one opts is given.
func Open(path string, opts ...OpenOptions) (*Plugin, error) {
	opened.Lock()
	defer opened.Unlock()
	full, err := Inspect(path, opts...)
	if err != nil {
		return nil, err
	}
	if info, err := os.Stat(full); err == nil {
		for _, p := range opened.plugins {
			if other, err := os.Stat(p.path); err == nil && os.SameFile(info, other) {
				return p, nil
			}
		}
	}
	api, err := capi.Load(full)
	if err != nil {
		reason := PluginNotLoaded
		var l *capi.LoadError
		if errors.As(err, &l) && l.Step != "dlopen" {
			reason = PluginBadTable
			if l.Step == "symbol" {
				reason = PluginNoEntry
			}
		}
		return nil, pluginError(full, reason, "", err)
	}
	if api.Major != 0 || api.Minor < capi.MinMinor {
		return nil, pluginError(full, PluginVersion, fmt.Sprintf("it speaks PJRT %d.%d, this package 0.%d and newer", api.Major, api.Minor, capi.MinMinor), nil)
	}
	if err := api.Initialize(); err != nil {
		e := pluginError(full, PluginInitialize, "", wrap("initialize", full, err))
		if strings.Contains(err.Error(), "lockfile") {
			e.Detail = "another process has libtpu loaded and may be using the TPU"
			e.Hint = "end that process, or, to compile only, start this one with ALLOW_MULTIPLE_LIBTPU_LOAD=1"
		}
		return nil, e
	}
	p := &Plugin{api: api, path: full}
	if p.attributes, err = api.Attributes(); err != nil && !errors.Is(wrap("", full, err), errors.ErrUnsupported) {
		return nil, pluginError(full, PluginInitialize, "", wrap("read attributes", full, err))
	}
	opened.plugins = append(opened.plugins, p)
	return p, nil
}

// Path returns the absolute path of the library.
func (p *Plugin) Path() string { return p.path }

// APIVersion returns the version of the API that the plugin speaks.
func (p *Plugin) APIVersion() Version {
	if p.api == nil {
		return Version{}
	}
	return Version{p.api.Major, p.api.Minor}
}

// Attributes returns what the plugin tells of itself, such as xla_version and
// stablehlo_current_version: string, int64, []int64, float32 or bool values. The map is the
// caller's.
func (p *Plugin) Attributes() map[string]any { return cloneAttributes(p.attributes) }

// extensionNames are PJRT_Extension_Type's, by number.
var extensionNames = [...]string{"Gpu_Custom_Call", "Profiler", "Custom_Partitioner", "Stream", "Layouts", "FFI",
	"MemoryDescriptions", "Triton", "RawBuffer", "PhaseCompile", "Example", "Unknown", "CrossHostTransfers",
	"ExecutableMetadata", "Callback", "HostAllocator", "TpuTopology", "TpuExecutable", "Megascale", "Shardings",
	"AbiVersion", "Collectives", "MultiSlice", "HostMemoryAllocator",
	"XlaTransform"}

// Extensions returns the names of the plugin's API extensions in the plugin's order. An extension
// that has no name here is "Extension(n)".
func (p *Plugin) Extensions() []string {
	if p.api == nil {
		return nil
	}
	types := p.api.Extensions()
	out := make([]string, len(types))
	for i, t := range types {
		if t >= 0 && t < len(extensionNames) {
			out[i] = extensionNames[t]
		} else {
			out[i] = fmt.Sprintf("Extension(%d)", t)
		}
	}
	return out
}

// String returns a text such as "xla_cpu_pjrt.so (PJRT 0.81)".
func (p *Plugin) String() string {
	return fmt.Sprintf("%s (PJRT %v)", filepath.Base(p.path), p.APIVersion())
}

func (p *Plugin) wrap(op string, err error) error { return wrap(op, p.path, err) }

// await runs a call that C cannot interrupt. If ctx ends first, await returns its error at once;
// the call goes on, and drop gets what it makes. A ctx that cannot end costs no goroutine. done, if
// not nil, runs after the call in every case.
func await[T any](ctx context.Context, op string, call func() (T, error), drop func(T), done func()) (T, error) {
	var zero T
	if done == nil {
		done = func() {}
	}
	if err := ctx.Err(); err != nil {
		done()
		return zero, ended(ctx, op)
	}
	if ctx.Done() == nil {
		defer done()
		return call()
	}
	type answer struct {
		v   T
		err error
	}
	answers := make(chan answer)
	go func() {
		defer done()
		v, err := call()
		select {
		case answers <- answer{v, err}:
		case <-ctx.Done():
			// The waiter may have left: only one of the two can take the value.
			select {
			case answers <- answer{v, err}:
			default:
				if err == nil {
					drop(v)
				}
			}
		}
	}()
	select {
	case a := <-answers:
		return a.v, a.err
	case <-ctx.Done():
		return zero, ended(ctx, op)
	}
}
