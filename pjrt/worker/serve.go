package worker

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"sync/atomic"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/internal/child"
	"github.com/tpustrategy/tpustrategy/pjrt"
)

// mark is the argument by which a program knows that it was started as a worker.
const mark = "tpustrategy-compile-worker"

// Main makes the program able to start itself as a worker: call it first in main. In a worker it
// compiles and ends the process. Otherwise it returns at once, with the command for [Options]. A
// worker applies those of the transforms that [Options].Transforms names.
func Main(transforms ...pjrt.Transform) []string {
	if len(os.Args) == 2 && os.Args[1] == mark {
		if err := Serve(transforms...); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	self := "/proc/self/exe" // also if the file was replaced meanwhile
	if runtime.GOOS != "linux" {
		path, err := os.Executable()
		if err != nil {
			path = os.Args[0]
		}
		self = path
	}
	return []string{self, mark}
}

// Serve does the work of a worker, for commands that are one: it reads the request of the program
// that started the process, answers it, and returns. For transforms see [Main].
func Serve(transforms ...pjrt.Transform) error {
	yield()
	return child.Serve("worker", func(data []byte) []byte {
		a := answer{Protocol: protocol}
		var r request
		var err error
		if err = decode(data, &r); err == nil && r.Protocol == protocol {
			err = bound(r.MemoryBytes)
			if err == nil {
				err = a.compile(context.Background(), r, transforms)
			}
		}
		if err != nil {
			a.fail(err)
		}
		out, err := encode(a)
		if err != nil { // of what an error holds
			out, _ = encode(answer{Protocol: protocol, Text: err.Error()})
		}
		return out
	})
}

// compile does what a request asks. This process is the one to lose: any program is taken.
func (a *answer) compile(ctx context.Context, r request, transforms []pjrt.Transform) error {
	r.Program.Trusted = true
	plugin, err := pjrt.Open(r.Plugin, r.Check)
	if err != nil {
		return err
	}
	// The process ends with the answer: what is open needs no Close.
	for _, name := range r.Transforms {
		i := slices.IndexFunc(transforms, func(t pjrt.Transform) bool { return t.Name == name })
		if i < 0 {
			return &errkind.Fault{Op: "worker: compile", Reason: fmt.Sprintf("the worker's program has no transform %q", name), Hint: "give it to worker.Main or worker.Serve there", Class: errkind.NotFoundError}
		}
		if _, err := plugin.Register(transforms[i]); err != nil {
			return err
		}
	}
	var shown atomic.Pointer[[]byte]
	if r.Probe {
		if _, err := plugin.Register(pjrt.Transform{Name: "probe", Stage: r.Stage, Apply: func(module []byte) ([]byte, error) {
			shown.CompareAndSwap(nil, &module)
			return nil, errors.New("the program of the probe is there")
		}}); err != nil {
			return err
		}
	}
	x, loaded, err := compile(ctx, plugin, r)
	defer runtime.KeepAlive(loaded) // or it is collected, and closed, before its program is read
	if module := shown.Load(); module != nil {
		a.Module = *module
		return nil
	}
	if err == nil && r.Probe {
		err = &errkind.Fault{Op: "worker: probe", Reason: "the compiler made the program without showing it", Class: errkind.FailedPreconditionError}
	}
	if err == nil {
		a.Record, err = serializable(x)
	}
	return err
}

// compile returns what a client has loaded, too.
func compile(ctx context.Context, plugin *pjrt.Plugin, r request) (*pjrt.Executable, *pjrt.LoadedExecutable, error) {
	if r.Client {
		client, err := plugin.NewClient(ctx, pjrt.ClientOptions{Options: r.ClientOptions})
		if err != nil {
			return nil, nil, err
		}
		loaded, err := client.Compile(ctx, r.Program, r.Options)
		if err != nil {
			return nil, nil, err
		}
		return loaded.Executable(), loaded, nil
	}
	topology, err := describe(ctx, plugin, r)
	if err != nil {
		return nil, nil, err
	}
	x, err := topology.Compile(ctx, r.Program, r.Options)
	return x, nil, err
}

func describe(ctx context.Context, plugin *pjrt.Plugin, r request) (*pjrt.Topology, error) {
	if r.Topology != nil {
		return plugin.LoadTopology(ctx, r.Topology)
	}
	return plugin.NewTopology(ctx, r.Name, r.TopologyOptions)
}

// serializable is an executable's record, if that has the program in it.
func serializable(x *pjrt.Executable) (pjrt.ExecutableRecord, error) {
	r, err := x.Record()
	if err != nil {
		return r, err
	}
	if e := r.Missing["serialize"]; e != nil {
		if errors.Is(e, errors.ErrUnsupported) {
			return r, e
		}
		return r, &errkind.Fault{Op: "the compiled program", Reason: "it cannot be serialized", Err: e}
	}
	return r, nil
}
