package probe

import (
	"context"
	"errors"
	"time"

	"github.com/tpustrategy/tpustrategy/pjrt"
)

// Keeper compiles where a strategy does, in this process, and keeps what comes of programs that are
// compiled ahead of time: the same one for the same slice, by the same build of the plugin, is compiled
// once. The executables tell what the compiler found out; they hold no machine code. It is used by one
// goroutine at a time.
type Keeper struct {
	// Folder keeps the answers; empty keeps none.
	Folder string
	// Took is how long the compiler took for the last program, now or then.
	Took time.Duration
}

// Compile has the client compile, and keeps nothing.
func (k *Keeper) Compile(ctx context.Context, client *pjrt.Client, program pjrt.Program, opts pjrt.CompileOptions) (*pjrt.LoadedExecutable, error) {
	defer k.since(time.Now())
	return client.Compile(ctx, program, opts)
}

func (k *Keeper) since(start time.Time) { k.Took = time.Since(start) }

// CompileTopology gives what was kept, or compiles. That a program is refused as too large is kept, too.
func (k *Keeper) CompileTopology(ctx context.Context, topology *pjrt.Topology, program pjrt.Program, opts pjrt.CompileOptions) (*pjrt.Executable, error) {
	folder := k.Folder
	slice, build, err := identify(topology)
	if err != nil {
		folder = ""
	}
	a, err := kept(folder, program, opts, func() (a answer, err error) {
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
	k.Took = a.Took
	switch {
	case err != nil:
		return nil, err
	case a.Err != nil:
		return nil, a.Err
	}
	return a.Record.Executable(), nil
}

// identify tells a slice and a build of a plugin apart from others.
func identify(topology *pjrt.Topology) (slice, build string, err error) {
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
