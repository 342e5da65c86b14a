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

// String returns the version in the form "0.81".
func (v Version) String() string { return fmt.Sprintf("%d.%d", v.Major, v.Minor) }

// Plugin is a loaded and initialized PJRT plugin. It is safe for concurrent use. A plugin cannot be
// closed: it stays loaded until the process exits, because its threads and handles use its code.
type Plugin struct {
	api        *capi.API
	path       string
	attributes map[string]any
}

// openPlugins contains the plugins of the process. It is a global variable because a library can be
// loaded and initialized only once per process.
var openPlugins struct {
	sync.Mutex
	plugins []*Plugin
}

// Open loads and initializes the plugin library at path. The plugin must implement PJRT 0.57 or
// newer. If the same file is opened again, even through another path, Open returns the same Plugin.
// Open takes from milliseconds to about a second. opts contains at most one value.
//
// The error is a [*PluginError] if the file is missing, truncated, not a shared library, built for
// another architecture, not a PJRT plugin, or too old. Loading a library executes code of the
// library. Open therefore checks first that only root, the current user and [OpenOptions].Owners
// could have written it; see [VerifyPlugin].
func Open(path string, opts ...OpenOptions) (*Plugin, error) {
	openPlugins.Lock()
	defer openPlugins.Unlock()
	full, err := VerifyPlugin(path, opts...)
	if err != nil {
		return nil, err
	}
	if info, err := os.Stat(full); err == nil {
		for _, p := range openPlugins.plugins {
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
		return nil, pluginError(full, PluginVersion,
			fmt.Sprintf("it implements PJRT %d.%d, but version 0.%d or newer is required", api.Major, api.Minor,
				capi.MinMinor), nil)
	}
	if err := api.Initialize(); err != nil {
		e := pluginError(full, PluginInitialize, "", wrapError("initialize", full, err))
		if strings.Contains(err.Error(), "lockfile") {
			e.Detail = "another process has libtpu loaded and may be using the TPU"
			e.Hint = "stop that process; to compile only, set ALLOW_MULTIPLE_LIBTPU_LOAD=1 instead"
		}
		return nil, e
	}
	p := &Plugin{api: api, path: full}
	if p.attributes, err = api.Attributes(); err != nil && !errors.Is(wrapError("", full, err), errors.ErrUnsupported) {
		return nil, pluginError(full, PluginInitialize, "", wrapError("read attributes", full, err))
	}
	openPlugins.plugins = append(openPlugins.plugins, p)
	return p, nil
}

// Path returns the absolute path of the library.
func (p *Plugin) Path() string { return p.path }

// APIVersion returns the version of the PJRT API that the plugin implements.
func (p *Plugin) APIVersion() Version {
	if p.api == nil {
		return Version{}
	}
	return Version{p.api.Major, p.api.Minor}
}

// Attributes returns a copy of the plugin's attributes, such as xla_version and
// stablehlo_current_version. Values are string, int64, []int64, float32 or bool.
func (p *Plugin) Attributes() map[string]any { return cloneAttributes(p.attributes) }

// extensionNames are the names of PJRT_Extension_Type.
var extensionNames = [...]string{"Gpu_Custom_Call", "Profiler", "Custom_Partitioner", "Stream", "Layouts", "FFI",
	"MemoryDescriptions", "Triton", "RawBuffer", "PhaseCompile", "Example", "Unknown", "CrossHostTransfers",
	"ExecutableMetadata", "Callback", "HostAllocator", "TpuTopology", "TpuExecutable", "Megascale", "Shardings",
	"AbiVersion", "Collectives", "MultiSlice", "HostMemoryAllocator", "XlaTransform"}

// Extensions returns the names of the plugin's API extensions in the order of the plugin. The name
// of an unknown extension is "Extension(n)", where n is its number.
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

// String returns a description such as "xla_cpu_pjrt.so (PJRT 0.81)".
func (p *Plugin) String() string {
	return fmt.Sprintf("%s (PJRT %v)", filepath.Base(p.path), p.APIVersion())
}

func (p *Plugin) wrapError(op string, err error) error { return wrapError(op, p.path, err) }

// callWithContext executes call, which cannot be interrupted. If ctx ends first, callWithContext
// returns the error of ctx immediately, and discard later receives the result of call. done, if not
// nil, is always called after call. A goroutine is started only if ctx can end.
func callWithContext[T any](ctx context.Context, op string, call func() (T, error), discard func(T), done func()) (T,
	error) {
	var zero T
	if done == nil {
		done = func() {}
	}
	if err := ctx.Err(); err != nil {
		done()
		return zero, contextError(ctx, op)
	}
	if ctx.Done() == nil {
		defer done()
		return call()
	}
	type result struct {
		v   T
		err error
	}
	results := make(chan result)
	go func() {
		defer done()
		v, err := call()
		select {
		case results <- result{v, err}:
		case <-ctx.Done():
			// callWithContext may have returned; it either receives the value or never will.
			select {
			case results <- result{v, err}:
			default:
				if err == nil {
					discard(v)
				}
			}
		}
	}()
	select {
	case r := <-results:
		return r.v, r.err
	case <-ctx.Done():
		return zero, contextError(ctx, op)
	}
}
