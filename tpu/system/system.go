package system

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	clusterresolver "github.com/tpustrategy/tpustrategy/cluster_resolver"
	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/pjrt"
	"github.com/tpustrategy/tpustrategy/tpu"
)

// System is a set of open devices with their plugin, client and topology. Its methods are safe for
// concurrent use. Topology, NumProcesses and Process provide the data of TensorFlow's TPUSystemMetadata.
type System struct {
	runtime  Runtime
	client   *pjrt.Client // nil for other runtimes
	topology tpu.Topology
	process  int
	location pjrt.Location
	cluster  *clusterresolver.Cluster // nil without a cluster or resolver
	byID     map[int]*pjrt.Device
	closed   atomic.Bool
}

// checkDevices checks that all devices of the topology exist, and that the devices of this process
// are the devices of exactly one task.
func (s *System) checkDevices() error {
	s.process = -1
	for task, ids := range s.topology.DeviceIDs() {
		for i, id := range ids {
			if s.byID[id] == nil {
				return topologyError("the client does not have device %d", id)
			}
			addressable := s.Runtime().Addressable(id)
			switch {
			case addressable && s.process < 0 && i == 0:
				s.process = task
			case addressable != (s.process == task):
				return topologyError("device %d of task %d: a process must address all devices of one task and no others", id, task)
			}
		}
	}
	if s.process < 0 {
		return topologyError("this process addresses no device of %s", s.topology)
	}
	return nil
}

// topologyError returns an error for a topology that does not match the runtime's devices.
func topologyError(format string, args ...any) error {
	return &errkind.Fault{Op: "topology", Reason: fmt.Sprintf(format, args...), Class: errkind.ValueError}
}

// Client returns the PJRT client, which the System owns. It is nil if the System was created by [New].
func (s *System) Client() *pjrt.Client { return s.client }

// Topology returns the topology of the devices.
func (s *System) Topology() tpu.Topology { return s.topology }

// Cluster returns a copy of the cluster (TensorFlow's Strategy.cluster_resolver). ok is false if
// the options of [Open] contained neither a cluster nor a resolver.
func (s *System) Cluster() (cluster clusterresolver.Cluster, ok bool) {
	if s.cluster == nil {
		return cluster, false
	}
	return s.cluster.Clone(), true
}

// Platform returns the plugin's platform name, such as "cpu" or "tpu".
func (s *System) Platform() string { return s.Runtime().PlatformName() }

// Plugin returns the path of the open plugin and how it was found.
func (s *System) Plugin() pjrt.Location { return s.location }

// Device returns the device with the given id, and whether the device exists.
func (s *System) Device(id int) (*pjrt.Device, bool) {
	device, ok := s.byID[id]
	return device, ok
}

// Close closes the runtime. If strategies or buffers of the system are open, Close returns an error
// with their number and closes nothing. After a successful call, further calls return the same result.
func (s *System) Close() error {
	if s == nil {
		return nil
	}
	err := s.Runtime().Close()
	if open := (*pjrt.InUseError)(nil); errors.As(err, &open) {
		return &errkind.Fault{Op: "system: close", Err: err, Hint: "close the strategies of the system first"}
	}
	if errkind.KindOf(err) != errkind.FailedPreconditionError {
		s.closed.Store(true)
	}
	return err
}

// Check returns nil, or an error that matches [pjrt.ErrClosed] if the system is closed or is the
// zero value.
func (s *System) Check() error {
	switch {
	case s.runtime == nil:
		return errZero
	case s.closed.Load():
		return closedError("system", "Open")
	}
	return nil
}

// Shutdown is like Close, but returns at the latest when ctx is done. Closing a client waits for active
// calls, and a call into the plugin may never return; in this case closing continues in the background.
// Shutdown corresponds to TensorFlow's tf.tpu.experimental.shutdown_tpu_system. On a slice with several
// hosts, every process must shut down; the Barrier method of a strategy synchronizes the processes.
func (s *System) Shutdown(ctx context.Context) error {
	done := make(chan error, 1)
	go func() { done <- s.Close() }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return &errkind.Fault{Op: "system: shutdown", Reason: "the runtime did not close", Err: context.Cause(ctx)}
	}
}

// New returns a System for an open runtime. Each task of the topology is a process, and the
// runtime's addressable devices must be the devices of one task. If New succeeds, the System owns
// rt and closes it.
func New(rt Runtime, topology tpu.Topology) (*System, error) {
	s, err := newSystem(rt, topology)
	if err != nil {
		return nil, &errkind.Fault{Op: "system: new", Err: err}
	}
	return s, nil
}

func newSystem(rt Runtime, topology tpu.Topology) (*System, error) {
	s := &System{runtime: rt, topology: topology, byID: map[int]*pjrt.Device{}}
	for _, device := range rt.Devices() {
		s.byID[device.ID()] = device
	}
	return s, s.checkDevices()
}

// Runtime returns the runtime, which the System owns.
func (s *System) Runtime() Runtime {
	if s.runtime == nil {
		return zeroRuntime{}
	}
	return s.runtime
}

// Addressable reports whether this process can use the device with the given id.
func (s *System) Addressable(id int) bool { return s.Runtime().Addressable(id) }

// NumProcesses returns the number of processes that share the devices. It is the number of tasks of
// the topology.
func (s *System) NumProcesses() int { return s.topology.NumTasks() }

// Process returns the index of this process, which is the index of its task in the topology.
func (s *System) Process() int { return s.process }
