package strategy

import (
	"context"
	"fmt"
	"runtime"

	"golang.org/x/sync/errgroup"

	"github.com/tpustrategy/tpustrategy/pjrt"
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
	if err := untraced(ctx, "copy parts", fault.InsteadOfReading); err != nil {
		return err
	}
	if err := s.runnable("reading variables"); err != nil {
		return err
	}
	layouts := make([]layout, len(parts))
	variables := make([]*Variable, len(parts))
	for i, p := range parts {
		l, err := s.checkCopy(p)
		if err != nil {
			return err
		}
		layouts[i], variables[i] = l, p.Variable
	}
	if err := arrive(ctx, variables...); err != nil {
		return err
	}
	s.launch.Lock()
	defer s.launch.Unlock()
	for i, p := range parts {
		if err := p.Variable.live(); err != nil {
			return err
		}
		d := p.Replica*s.logicalDevices + p.LogicalDevice
		if p.Variable.buffers[d] == nil {
			return s.remote(p.Replica, p.LogicalDevice)
		}
		if i == 0 || p.Variable != parts[i-1].Variable {
			if err := ready(ctx, p.Variable.buffers); err != nil {
				return fault.Of(fmt.Sprintf("variable %q", p.Variable.path), err, "")
			}
		}
	}
	group, within := errgroup.WithContext(ctx)
	group.SetLimit(max(2, min(runtime.GOMAXPROCS(0), 8)))
	for i, p := range parts {
		group.Go(func() error {
			if err := context.Cause(within); err != nil {
				return err
			}
			b := p.Variable.buffers[p.Replica*s.logicalDevices+p.LogicalDevice]
			if err := copyPart(within, b, &layouts[i], p); err != nil {
				return fault.Of(fmt.Sprintf("variable %q", p.Variable.path), err, "")
			}
			if p.Done != nil {
				p.Done()
			}
			return nil
		})
	}
	return group.Wait()
}

// checkCopy returns how the variable of a copy lies on the devices, if the copy can be made.
func (s *TPUStrategy) checkCopy(p PartCopy) (layout, error) {
	wrong := func(hint, format string, args ...any) error {
		return fault.New(ValueError, "copy parts", hint, format, args...)
	}
	switch {
	case p.Variable == nil:
		return layout{}, wrong("give each part its variable", "no variable")
	case p.Variable.strategy != s:
		return layout{}, s.ownsVariable("copy parts", p.Variable)
	case p.Replica < 0 || p.Replica >= s.replicas || p.LogicalDevice < 0 || p.LogicalDevice >= s.logicalDevices:
		return layout{}, wrong("count from 0", "replica %d of %d, logical device %d of %d", p.Replica, s.replicas, p.LogicalDevice, s.logicalDevices)
	}
	l, err := p.Variable.layout()
	if err != nil {
		return l, fault.Of(fmt.Sprintf("variable %q", p.Variable.path), err, "")
	}
	_, sizes := l.held(p.Replica, p.LogicalDevice)
	if n := l.wire.HostBytes() * size(sizes); n != len(p.Into) {
		return l, wrong("give memory for the part without padding", "%d bytes for a part of %d of variable %q", len(p.Into), n, p.Variable.path)
	}
	return l, nil
}

// copyPart copies a buffer to the host, without its padding.
func copyPart(ctx context.Context, b *pjrt.Buffer, l *layout, p PartCopy) error {
	if len(p.Into) == l.shardBytes {
		if len(p.Into) == 0 {
			return nil
		}
		return b.ToHost(ctx, p.Into)
	}
	all := make([]byte, l.shardBytes)
	if err := b.ToHost(ctx, all); err != nil {
		return err
	}
	_, sizes := l.held(p.Replica, p.LogicalDevice)
	unpad(p.Into, all, l, sizes)
	return nil
}
