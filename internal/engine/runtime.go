package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/pjrt"
	"github.com/tpustrategy/tpustrategy/tpu"
	"github.com/tpustrategy/tpustrategy/tpu/system"
)

// Options configure a Runtime.
type Options struct {
	// ErrorPrefix is the prefix of the runtime's error messages: the package that the user called.
	ErrorPrefix string
	// Groups are the device ids of each group. A group is usually the logical devices of one
	// replica.
	Groups [][]int
	// Compiler, if not nil, compiles programs instead of the system's runtime.
	Compiler pjrt.Compiler
	// Overrides are XLA debug options for each program.
	Overrides map[string]any
	// Progress, if not nil, is called periodically during long compilations.
	Progress func(Compilation)
	// Parent is the parent of the context Runtime.Context. Nil is the context of the process.
	Parent context.Context
	// Closed is the error returned by calls after Close.
	Closed error
	// Differ returns the error of [Runtime.CheckAgreement] if the processes pass different content.
	// what is the name of the content, and texts has the description by each process. differing
	// lists, in ascending order, the processes whose content is not the most frequent one. If
	// several contents are equally frequent, the content of process 0 is the reference.
	Differ func(what string, texts []string, differing []int) error
	// OutOfStep returns the error for processes that wait for each other in different calls.
	// calls[i] is the call of process i. Nil creates an [errkind.Fault].
	OutOfStep func(calls []string) error
}

// Runtime compiles programs and launches them on groups of devices. With P devices per group,
// partition r*P + p is device p of group r. A runtime without devices (see [NewDescribedRuntime])
// only compiles, and each launch returns an error. A Runtime is safe for concurrent use.
type Runtime struct {
	Processes
	// System is the system of the devices. All are the devices by partition, including the devices
	// of the other processes of the job. Both are nil for a described runtime.
	System *system.System
	All    []*pjrt.Device
	// Context is the context of waits without another context. [Runtime.Cancel] cancels it.
	Context context.Context
	// Cancel cancels Context with [Options].Closed as its cause. Close also calls Cancel.
	Cancel func()
	// Launch orders launches: all devices must receive programs in the same order. Otherwise two
	// programs with collectives could wait for each other forever. Hold Launch during a launch and
	// while changing the arguments of launches.
	Launch sync.Mutex

	opts     Options
	ids      []int // device ids by partition
	group    int   // devices per group
	topology tpu.Topology
	platform string
	compile  compileFunc
	builds   buildList

	exchanging sync.Mutex // held while an exchange is compiled

	mu        sync.Mutex
	exchanges []*exchange
	closed    bool
}

// compileFunc compiles a program for the devices of a runtime.
type compileFunc func(ctx context.Context, program pjrt.Program, opts pjrt.CompileOptions) (system.Executable, error)

func newRuntime(topology tpu.Topology, platform string, opts Options, compile compileFunc) *Runtime {
	m := &Runtime{opts: opts, ids: slices.Concat(opts.Groups...), topology: topology, platform: platform,
		compile: compile}
	m.group = len(m.ids) / max(len(opts.Groups), 1)
	m.builds.running = map[buildKey]*build{}
	if opts.Parent == nil {
		opts.Parent = context.Background()
	}
	life, end := context.WithCancelCause(opts.Parent)
	m.Context, m.Cancel = life, func() { end(opts.Closed) }
	return m
}

// NewRuntime returns the runtime of a system's devices. The caller keeps ownership of the system.
// It returns an error for a device that the system does not have, and for groups without a device
// of this process.
func NewRuntime(sys *system.System, opts Options) (*Runtime, error) {
	compile := func(ctx context.Context, program pjrt.Program, of pjrt.CompileOptions) (system.Executable, error) {
		client := sys.Client()
		if client == nil || opts.Compiler == nil {
			return sys.Runtime().Compile(ctx, program, of)
		}
		x, err := opts.Compiler.Compile(ctx, client, program, of)
		if err != nil {
			return nil, err
		}
		return x, nil
	}
	m := newRuntime(sys.Topology(), sys.Platform(), opts, compile)
	m.System = sys
	tasks := make([]int, len(m.ids))
	for i, id := range m.ids {
		device, ok := sys.Device(id)
		if !ok {
			return nil, m.fault(errkind.ValueError, "devices", "use a device assignment of the system's devices",
				"it names device %d, which the system does not have", id)
		}
		m.All = append(m.All, device)
		tasks[i], _ = sys.Topology().TaskOfDevice(id)
	}
	var ok bool
	if m.Processes, ok = NewProcesses(tasks, sys.Process(), m.group); !ok {
		return nil, m.fault(errkind.ValueError, "devices", "every process of the system takes part",
			"no device of this process, which is process %d of %d", sys.Process(), sys.NumProcesses())
	}
	return m, nil
}

// NewDescribedRuntime returns a runtime for a TPU slice that does not have to be attached. The
// runtime compiles programs but cannot run them. The caller keeps ownership of the slice.
func NewDescribedRuntime(slice *system.Slice, opts Options) *Runtime {
	compile := slice.Compile
	if c, ok := opts.Compiler.(pjrt.TopologyCompiler); ok {
		compile = func(ctx context.Context, program pjrt.Program, of pjrt.CompileOptions) (*pjrt.Executable, error) {
			return c.CompileTopology(ctx, slice.Description(), program, of)
		}
	}
	return NewCompilingRuntime(slice.Topology(), slice.Description().PlatformName(), compile, opts)
}

// NewCompilingRuntime returns a runtime for a topology and platform whose devices are not attached.
// The runtime compiles with the given function and cannot run programs.
func NewCompilingRuntime(topology tpu.Topology, platform string, compile func(context.Context, pjrt.Program,
	pjrt.CompileOptions) (*pjrt.Executable, error), opts Options) *Runtime {
	return newRuntime(topology, platform, opts, func(ctx context.Context, program pjrt.Program,
		of pjrt.CompileOptions) (system.Executable, error) {
		x, err := compile(ctx, program, of)
		if err != nil {
			return nil, err
		}
		return OfflineProgram{x}, nil
	})
}

// OfflineProgram is a [system.Executable] for devices that are not attached.
type OfflineProgram struct{ *pjrt.Executable }

// AddressableDevices returns nil, because the devices are not attached.
func (OfflineProgram) AddressableDevices() []*pjrt.Device { return nil }

// Execute always returns an error that matches errors.ErrUnsupported.
func (OfflineProgram) Execute(context.Context, [][]*pjrt.Buffer, [][]*pjrt.Buffer, pjrt.ExecuteOptions) error {
	return &errkind.Fault{Op: "engine: execute", Reason: "the devices are only described",
		Class: errkind.NotImplementedError, Match: errors.ErrUnsupported}
}

// NumDevices returns the number of devices of all groups.
func (m *Runtime) NumDevices() int { return len(m.ids) }

// GroupSize returns the number of devices of a group.
func (m *Runtime) GroupSize() int { return m.group }

// Topology returns the topology of the slice.
func (m *Runtime) Topology() tpu.Topology { return m.topology }

// Platform returns the plugin's name of the platform: "cpu", "tpu" or "cuda".
func (m *Runtime) Platform() string { return m.platform }

// Options returns the compile options of a program on all devices. replicas is the number of
// replicas of the program, which have equal numbers of devices; 0 means 1.
func (m *Runtime) Options(replicas int) pjrt.CompileOptions { return m.optionsFor(m.ids, replicas) }

// OptionsOn is like [Runtime.Options] for a program on the devices of the given partitions.
func (m *Runtime) OptionsOn(partitions []int, replicas int) pjrt.CompileOptions {
	on := make([]int, len(partitions))
	for i, d := range partitions {
		on[i] = m.ids[d]
	}
	return m.optionsFor(on, replicas)
}

func (m *Runtime) optionsFor(ids []int, replicas int) pjrt.CompileOptions {
	replicas = max(replicas, 1)
	partitions := len(ids) / replicas
	return pjrt.CompileOptions{
		Replicas: replicas, Partitions: partitions, DeviceAssignment: slices.Collect(slices.Chunk(ids, partitions)),
		SPMD: partitions > 1, Shardy: partitions > 1, Overrides: m.opts.Overrides,
	}
}

// fault returns an error of the given kind for the operation op. reason is a format string, and
// hint suggests a correction.
func (m *Runtime) fault(kind errkind.Kind, op, hint, reason string, args ...any) *errkind.Fault {
	return &errkind.Fault{Op: m.opts.ErrorPrefix + ": " + op, Reason: fmt.Sprintf(reason, args...), Hint: hint,
		Class: kind}
}

// wrapError returns an error for the operation op, which failed because of cause.
func (m *Runtime) wrapError(op string, cause error) *errkind.Fault {
	return &errkind.Fault{Op: m.opts.ErrorPrefix + ": " + op, Err: cause}
}

// formatPartition returns the replica and logical device of a partition for error messages.
func (m *Runtime) formatPartition(partition int) string {
	return fmt.Sprintf("replica %d, logical device %d", partition/m.group, partition%m.group)
}
