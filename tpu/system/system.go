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

// System is an open set of devices: plugin, client and topology as one object. Its methods are safe
// for concurrent use. What TensorFlow keeps as TPUSystemMetadata is in its Topology, NumProcesses
// and Process.
type System struct {
	runtime  Runtime
	client   *pjrt.Client // nil over another runtime
	topology tpu.Topology
	process  int
	found    pjrt.Location
	cluster  *clusterresolver.Cluster // nil if nothing is known of one
	byID     map[int]*pjrt.Device
	closed   atomic.Bool
}

// checkDevices holds the topology against the runtime: every device that the topology names must
// exist, and the addressable ones are one task's.
func (s *System) checkDevices() error {
	s.process = -1
	for task, ids := range s.topology.DeviceIDs() {
		for i, id := range ids {
			if s.byID[id] == nil {
				return mismatch("it names device %d, which the client does not have", id)
			}
			mine := s.Runtime().Addressable(id)
			switch {
			case mine && s.process < 0 && i == 0:
				s.process = task
			case mine != (s.process == task):
				return mismatch("device %d of task %d: a process addresses the devices of one task, all of them", id, task)
			}
		}
	}
	if s.process < 0 {
		return mismatch("this process addresses no device of %s", s.topology)
	}
	return nil
}

// mismatch is the error of a topology that is not that of the runtime's devices.
func mismatch(format string, args ...any) error {
	return &errkind.Fault{Op: "topology", Reason: fmt.Sprintf(format, args...), Class: errkind.ValueError}
}

// Client returns the client, which stays the system's to close. It is nil if the system was made by
// [New].
func (s *System) Client() *pjrt.Client { return s.client }

// Topology returns where the devices are.
func (s *System) Topology() tpu.Topology { return s.topology }

// Cluster returns what is known of the processes, if Open was given a resolver or a cluster:
// TensorFlow's Strategy.cluster_resolver. It belongs to the caller.
func (s *System) Cluster() (cluster clusterresolver.Cluster, ok bool) {
	if s.cluster == nil {
		return cluster, false
	}
	return s.cluster.Clone(), true
}

// Platform returns the plugin's platform name: "cpu" or "tpu".
func (s *System) Platform() string { return s.Runtime().PlatformName() }

// Plugin returns which plugin is open and where it was found.
func (s *System) Plugin() pjrt.Location { return s.found }

// Device returns the device with an id, and whether there is one.
func (s *System) Device(id int) (*pjrt.Device, bool) {
	device, ok := s.byID[id]
	return device, ok
}

// Close closes the runtime. While strategies or buffers are open on it, Close fails and counts
// them. A second Close returns the first result.
func (s *System) Close() error {
	if s == nil {
		return nil
	}
	err := s.Runtime().Close()
	if open := (*pjrt.OpenError)(nil); errors.As(err, &open) {
		return &errkind.Fault{Op: "system: close", Err: err, Hint: "close the strategies on it first"}
	}
	if errkind.Of(err) != errkind.FailedPreconditionError {
		s.closed.Store(true)
	}
	return err
}

// Check returns nil while the system is open, and then an error that matches [pjrt.ErrClosed].
func (s *System) Check() error {
	switch {
	case s.runtime == nil:
		return errZero
	case s.closed.Load():
		return errClosed("system", "Open")
	}
	return nil
}

// Shutdown closes the system as Close does, and returns when ctx ends at the latest: closing a
// client waits for the calls under way, and a plugin may not come back from one. The rest then goes
// on in the background. It is TensorFlow's tf.tpu.experimental.shutdown_tpu_system. On a slice
// every process shuts down; strategy's Barrier makes them do so together.
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

// New returns a system over a runtime that is open. Each task of the topology is a process; the
// runtime's addressable devices are those of one task. The runtime is the system's to close from
// now on.
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

// Runtime returns what the system runs on, which stays the system's to close.
func (s *System) Runtime() Runtime {
	if s.runtime == nil {
		return noRuntime{}
	}
	return s.runtime
}

// Addressable reports whether this process can use the device of an id.
func (s *System) Addressable(id int) bool { return s.Runtime().Addressable(id) }

// NumProcesses returns how many processes share the devices, which are the topology's tasks.
func (s *System) NumProcesses() int { return s.topology.NumTasks() }

// Process returns the number of this process, from 0, which is that of its task in the topology.
func (s *System) Process() int { return s.process }
