package mesh

import (
	"context"
	"errors"
	"runtime"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/tpustrategy/tpustrategy/pjrt"
)

// PartCopy is a part of a tensor to copy to the host: what one partition of this process holds of it.
type PartCopy struct {
	// Name names the tensor in errors.
	Name      string
	Layout    *Layout
	From      Buffers
	Partition int
	// Into is as long as the part without padding: [Layout.BoxBytes].
	Into []byte
	// Done is called when the part is in Into, from any goroutine. It may be nil.
	Done func()
}

// CopyOut copies parts to the host, several at a time and in any order. The caller keeps the buffers
// from changing meanwhile.
func (m *Machine) CopyOut(ctx context.Context, parts []PartCopy) error {
	group, within := errgroup.WithContext(ctx)
	group.SetLimit(max(2, min(runtime.GOMAXPROCS(0), 8)))
	for _, p := range parts {
		group.Go(func() error {
			if err := context.Cause(within); err != nil {
				return err
			}
			if err := m.GetPart(within, p.Layout, p.From, p.Partition, p.Into); err != nil {
				return m.failed(p.Name, err)
			}
			if p.Done != nil {
				p.Done()
			}
			return nil
		})
	}
	return group.Wait()
}

// Broadcaster copies tensors from the devices that made them to this process's others, while the
// next are made. Where a runtime takes the host's memory for the way of a copy, that is less than
// the largest tensor needs: no more than its bytes, or one part, are under way at a time. One
// goroutine uses it.
type Broadcaster struct {
	machine  *Machine
	to       func(ctx context.Context, b *pjrt.Buffer, d *pjrt.Device) (*pjrt.Buffer, error) // the plugin's copy
	largest  int                                                                             // bytes of the largest tensor so far
	underWay []*pjrt.Buffer                                                                  // oldest first
	bytes    int                                                                             // of what is under way
}

// Spread returns a Broadcaster.
func (m *Machine) Spread() *Broadcaster {
	return &Broadcaster{machine: m, to: func(ctx context.Context, b *pjrt.Buffer, d *pjrt.Device) (*pjrt.Buffer, error) {
		return b.CopyToDevice(ctx, d)
	}}
}

// Start starts the copies of a tensor of so many bytes: into each partition of this process that lacks
// its part, from the partition that source names.
func (s *Broadcaster) Start(ctx context.Context, bytes int, all Buffers, source func(partition int) int) error {
	m := s.machine
	s.largest = max(s.largest, bytes)
	for _, partition := range m.mine {
		if all[partition] != nil {
			continue
		}
		from := all[source(partition)]
		for len(s.underWay) > 0 && s.bytes+from.Bytes() > s.largest {
			if err := s.wait(ctx); err != nil {
				return err
			}
		}
		b, err := s.copy(ctx, from, m.All[partition])
		if err != nil {
			return m.failed("copying to "+m.device(partition), err)
		}
		all[partition] = b
		s.underWay, s.bytes = append(s.underWay, b), s.bytes+b.Bytes()
	}
	return nil
}

// copy starts a copy to a device. Of a plugin that has none, the copy goes through the host.
func (s *Broadcaster) copy(ctx context.Context, b *pjrt.Buffer, d *pjrt.Device) (*pjrt.Buffer, error) {
	made, err := s.to(ctx, b, d)
	if !errors.Is(err, errors.ErrUnsupported) {
		return made, err
	}
	data := make([]byte, b.Bytes())
	if err := b.ToHost(ctx, data); err != nil {
		return nil, err
	}
	return s.machine.System.Runtime().BufferFromHost(ctx, data, b.DType(), b.Dims(), d)
}

// wait waits for the oldest copy.
func (s *Broadcaster) wait(ctx context.Context) error {
	b := s.underWay[0]
	if err := b.Ready(ctx); err != nil {
		return s.machine.failed("waiting for a copy", err)
	}
	s.underWay, s.bytes = s.underWay[1:], s.bytes-b.Bytes()
	return nil
}

// Here reports whether all partitions of this process have their parts.
func (m *Machine) Here(all Buffers) bool {
	return !slices.ContainsFunc(m.mine, func(partition int) bool { return all[partition] == nil })
}
