package probe

import (
	"context"
	"errors"
	"time"

	"github.com/tpustrategy/tpustrategy/pjrt"
)

// CachingCompiler is a strategy.Options.Compiler that runs in this process and caches programs that
// are compiled ahead of time, by slice and build of the plugin. Cached executables contain the
// results of the analysis and no machine code. It is not safe for concurrent use.
type CachingCompiler struct {
	// CacheDir is the folder for compiler results. If it is empty, results are not cached.
	CacheDir string
	// Duration is the compile time of the last program. For a cached program it is the original time.
	Duration time.Duration
}

// Compile compiles a program without using the cache.
func (k *CachingCompiler) Compile(ctx context.Context, client *pjrt.Client, program pjrt.Program,
	opts pjrt.CompileOptions) (*pjrt.LoadedExecutable, error) {
	defer k.setDuration(time.Now())
	return client.Compile(ctx, program, opts)
}

func (k *CachingCompiler) setDuration(start time.Time) { k.Duration = time.Since(start) }

// CompileTopology returns the cached program, or compiles it. The error for a program that is too
// large is cached, too.
func (k *CachingCompiler) CompileTopology(ctx context.Context, topology *pjrt.Topology, program pjrt.Program,
	opts pjrt.CompileOptions) (*pjrt.Executable, error) {
	folder := k.CacheDir
	slice, build, err := topologyIdentity(topology)
	if err != nil {
		folder = ""
	}
	a, err := loadOrCompute(folder, program, opts, func() (a cacheEntry, err error) {
		start := time.Now()
		x, err := topology.Compile(ctx, program, opts)
		a.Took = time.Since(start)
		if errors.As(err, &a.Err) && a.Err.Code == pjrt.ResourceExhausted {
			return a, nil
		}
		if err != nil {
			return a, err
		}
		a.Record, err = x.Record()
		a.Record.Serialized = nil
		return a, errors.Join(err, x.Close())
	}, "executable", slice, build)
	k.Duration = a.Took
	switch {
	case err != nil:
		return nil, err
	case a.Err != nil:
		return nil, a.Err
	}
	return a.Record.Executable(), nil
}

// topologyIdentity returns strings that identify a slice and a build of the plugin, as cache keys.
func topologyIdentity(topology *pjrt.Topology) (slice, build string, err error) {
	described, err := topology.Serialize()
	if err != nil {
		return "", "", err
	}
	plugin, err := pjrt.Open(topology.PluginPath()) // which is open
	if err != nil {
		return "", "", err
	}
	build, err = plugin.Identity(topology.PlatformName(), topology.PlatformVersion())
	return string(described), build, err
}
