package strategy

import (
	"context"
	"fmt"

	"github.com/tpustrategy/tpustrategy/internal/mesh"
	"github.com/tpustrategy/tpustrategy/strategy/internal/fault"
)

// PartCopy is a part of a variable to copy to the host: what one device of this process holds of
// it.
type PartCopy struct {
	Variable *Variable
	// Replica and LogicalDevice name the device.
	Replica, LogicalDevice int
	// Into is as long as the part without padding, which has [Shard].Size elements in each
	// dimension.
	Into []byte
	// Done is called when the part is in Into, in any order and from several goroutines. It may be
	// nil. After an error of CopyParts it may not have been called.
	Done func()
}

// CopyParts copies parts of variables to the host, several at a time. It waits for the steps under
// way; no step is launched while it copies, so that all parts are of one moment. Each process
// copies what it likes: there is nothing that the processes do together, but for variables whose
// first value has yet to be made.
//
// Errors: [*RemoteError] for a part of another process's device, an [*Error] of kind ValueError for
// another length of Into or a variable of another strategy, [ErrClosed].
func (s *TPUStrategy) CopyParts(ctx context.Context, parts []PartCopy) error {
	if err := RefuseTracing(ctx, "copy parts", fault.InsteadOfReading); err != nil {
		return err
	}
	if err := s.runnable("reading variables"); err != nil {
		return err
	}
	copies := make([]mesh.PartCopy, len(parts))
	variables := make([]*Variable, len(parts))
	for i, p := range parts {
		var err error
		if copies[i], err = s.checkCopy(p); err != nil {
			return err
		}
		variables[i] = p.Variable
	}
	if err := arrive(ctx, variables...); err != nil {
		return err
	}
	s.machine.Launch.Lock()
	defer s.machine.Launch.Unlock()
	for i, v := range variables {
		if err := v.live(); err != nil {
			return err
		}
		copies[i].From = v.buffers
		if v.buffers[copies[i].Partition] == nil {
			return s.remote(copies[i].Partition)
		}
		if i == 0 || v != variables[i-1] {
			if err := ready(ctx, v.buffers); err != nil {
				return fault.Of(copies[i].Name, err, "")
			}
		}
	}
	return s.devices.CopyOut(ctx, copies)
}

// checkCopy returns a copy, if it can be made.
func (s *TPUStrategy) checkCopy(p PartCopy) (mesh.PartCopy, error) {
	wrong := func(hint, format string, args ...any) (mesh.PartCopy, error) {
		return mesh.PartCopy{}, fault.New(ValueError, "copy parts", hint, format, args...)
	}
	switch {
	case p.Variable == nil:
		return wrong("give each part its variable", "no variable")
	case p.Variable.strategy != s:
		return mesh.PartCopy{}, p.Variable.ownedBy(s, "copy parts")
	case p.Replica < 0 || p.Replica >= s.replicas || p.LogicalDevice < 0 || p.LogicalDevice >= s.logicalDevices:
		return wrong("count from 0", "replica %d of %d, logical device %d of %d", p.Replica, s.replicas, p.LogicalDevice, s.logicalDevices)
	}
	name := fmt.Sprintf("variable %q", p.Variable.path)
	l, err := p.Variable.layout()
	if err != nil {
		return mesh.PartCopy{}, fault.Of(name, err, "")
	}
	d := p.Replica*s.logicalDevices + p.LogicalDevice
	if n := l.BoxBytes(d); n != len(p.Into) {
		return wrong("give memory for the part without padding", "%d bytes for a part of %d of variable %q", len(p.Into), n, p.Variable.path)
	}
	return mesh.PartCopy{Name: name, Layout: l, Partition: d, Into: p.Into, Done: p.Done}, nil
}
