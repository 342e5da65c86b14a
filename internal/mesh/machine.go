package mesh

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

// Options describe a machine.
type Options struct {
	// Speaker begins the texts of the machine's errors: the package that the user called.
	Speaker string
	// Groups are the ids of the devices by group: the logical devices of each replica.
	Groups [][]int
	// Compiler compiles in place of the system's runtime. Nil is the runtime.
	Compiler pjrt.Compiler
	// Overrides are XLA's debug options for each program.
	Overrides map[string]any
	// GoesOn is told of compilations that take long. It may be nil.
	GoesOn func(Compilation)
	// Within is the context that the machine's life is a part of; nil is that of the process.
	Within context.Context
	// Closed is the error of a use after Close.
	Closed error
	// Differ makes the error of [Machine.Agree]: what was compared, the processes' texts, and the
	// processes whose contents are not the most frequent ones, ascending. Where several are equally
	// frequent, those of process 0 count.
	Differ func(what string, texts []string, differing []int) error
	// OutOfStep makes the error of processes that wait for each other in different calls, which are
	// given by process. Nil makes an [errkind.Fault].
	OutOfStep func(calls []string) error
}

// Machine is groups of devices that programs are compiled for and launched on. Partition r*P + p is
// device p of group r. Of a machine that is only described no partition is this process's: there is
// nowhere to copy to, nothing to read and nobody to meet, and what is launched is an error. A Machine
// is safe for concurrent use.
type Machine struct {
	Processes
	// System is that of the devices, and All are the devices by partition: this process's, and those of
	// the other processes of the job. Both are nil of a machine that is only described.
	System *system.System
	All    []*pjrt.Device
	// Life is the context of waits that no caller bounds. [Machine.End] ends it.
	Life context.Context
	// End ends Life with [Options].Closed as its cause. Close calls it, too.
	End func()
	// Launch makes programs reach all devices in one order: two that enter the devices' queues in
	// different orders could wait for ever, each in its own collective. Who launches holds it, and who
	// changes what launches take.
	Launch sync.Mutex

	opts     Options
	ids      []int // of the devices, by partition
	group    int   // devices in a group
	topology tpu.Topology
	platform string
	target   target
	builds   builds

	exchanging sync.Mutex // held while an exchange is compiled

	mu        sync.Mutex
	exchanges []*exchange
	closed    bool
}

// target compiles a program for the machine.
type target func(ctx context.Context, program pjrt.Program, opts pjrt.CompileOptions) (system.Executable, error)

func newMachine(topology tpu.Topology, platform string, opts Options, compile target) *Machine {
	m := &Machine{opts: opts, ids: slices.Concat(opts.Groups...), topology: topology, platform: platform, target: compile}
	m.group = len(m.ids) / max(len(opts.Groups), 1)
	m.builds.underWay = map[buildKey]*build{}
	if opts.Within == nil {
		opts.Within = context.Background()
	}
	life, end := context.WithCancelCause(opts.Within)
	m.Life, m.End = life, func() { end(opts.Closed) }
	return m
}

// On returns the machine of a system's devices. The system stays the caller's. Errors: a device that
// the system lacks, and groups of which this process has no device.
func On(sys *system.System, opts Options) (*Machine, error) {
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
	m := newMachine(sys.Topology(), sys.Platform(), opts, compile)
	m.System = sys
	tasks := make([]int, len(m.ids))
	for i, id := range m.ids {
		device, ok := sys.Device(id)
		if !ok {
			return nil, m.fault(errkind.ValueError, "devices", "use a device assignment of the system's devices", "it names device %d, which the system does not have", id)
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

// Describe returns the machine of a slice that need not be here. The slice stays the caller's.
func Describe(slice *system.Slice, opts Options) *Machine {
	compile := slice.Compile
	if c, ok := opts.Compiler.(pjrt.TopologyCompiler); ok {
		compile = func(ctx context.Context, program pjrt.Program, of pjrt.CompileOptions) (*pjrt.Executable, error) {
			return c.CompileTopology(ctx, slice.Description(), program, of)
		}
	}
	return Compiling(slice.Topology(), slice.Description().PlatformName(), compile, opts)
}

// Compiling returns a machine that is nothing but a compiler for devices of a platform.
func Compiling(topology tpu.Topology, platform string, compile func(context.Context, pjrt.Program, pjrt.CompileOptions) (*pjrt.Executable, error), opts Options) *Machine {
	return newMachine(topology, platform, opts, func(ctx context.Context, program pjrt.Program, of pjrt.CompileOptions) (system.Executable, error) {
		x, err := compile(ctx, program, of)
		if err != nil {
			return nil, err
		}
		return OfflineProgram{x}, nil
	})
}

// OfflineProgram is a program for devices that are not here.
type OfflineProgram struct{ *pjrt.Executable }

// AddressableDevices returns none.
func (OfflineProgram) AddressableDevices() []*pjrt.Device { return nil }

// Execute returns an error that matches errors.ErrUnsupported.
func (OfflineProgram) Execute(context.Context, [][]*pjrt.Buffer, [][]*pjrt.Buffer, pjrt.ExecuteOptions) error {
	return &errkind.Fault{Op: "mesh: execute", Reason: "the devices are only described", Class: errkind.NotImplementedError, Match: errors.ErrUnsupported}
}

// NumDevices returns the number of devices of all groups.
func (m *Machine) NumDevices() int { return len(m.ids) }

// GroupSize returns the number of devices of a group.
func (m *Machine) GroupSize() int { return m.group }

// Topology returns where the devices are.
func (m *Machine) Topology() tpu.Topology { return m.topology }

// Platform returns the plugin's name of the platform: "cpu", "tpu" or "cuda".
func (m *Machine) Platform() string { return m.platform }

// Options are the options of a program on all devices, for so many replicas of the program with an
// equal share of the devices each; 0 stands for 1.
func (m *Machine) Options(replicas int) pjrt.CompileOptions { return m.optionsFor(m.ids, replicas) }

// OptionsOn are the options of a program on the devices of some partitions.
func (m *Machine) OptionsOn(partitions []int, replicas int) pjrt.CompileOptions {
	on := make([]int, len(partitions))
	for i, d := range partitions {
		on[i] = m.ids[d]
	}
	return m.optionsFor(on, replicas)
}

func (m *Machine) optionsFor(ids []int, replicas int) pjrt.CompileOptions {
	replicas = max(replicas, 1)
	partitions := len(ids) / replicas
	return pjrt.CompileOptions{
		Replicas: replicas, Partitions: partitions, DeviceAssignment: slices.Collect(slices.Chunk(ids, partitions)),
		SPMD: partitions > 1, Shardy: partitions > 1, Overrides: m.opts.Overrides,
	}
}

// fault is an error of the machine: what failed, why, and what to do.
func (m *Machine) fault(kind errkind.Kind, op, hint, reason string, args ...any) *errkind.Fault {
	return &errkind.Fault{Op: m.opts.Speaker + ": " + op, Reason: fmt.Sprintf(reason, args...), Hint: hint, Class: kind}
}

// failed is the error of an operation that failed for a cause.
func (m *Machine) failed(op string, cause error) *errkind.Fault {
	return &errkind.Fault{Op: m.opts.Speaker + ": " + op, Err: cause}
}

// device names a partition in errors.
func (m *Machine) device(partition int) string {
	return fmt.Sprintf("replica %d, logical device %d", partition/m.group, partition%m.group)
}
