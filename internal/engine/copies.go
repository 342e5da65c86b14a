package engine

import (
	"context"
	"errors"
	"runtime"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/tpustrategy/tpustrategy/pjrt"
)

// PartCopy is a copy of a shard to the host: of the shard of a tensor that one partition of this
// process has.
type PartCopy struct {
	// Name is the name of the tensor in errors.
	Name      string
	Layout    *Layout
	From      Buffers
	Partition int
	// Into receives the shard without padding. Its length is [Layout.BoxBytes].
	Into []byte
	// Done is called when Into is complete, from any goroutine. It may be nil.
	Done func()
}

// CopyOut copies shards to the host, several concurrently and in any order. The caller must not
// change the buffers until CopyOut returns.
func (m *Runtime) CopyOut(ctx context.Context, parts []PartCopy) error {
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

// Broadcaster copies tensors from the devices that computed them to the other devices of this
// process, while the next tensors are computed. Some runtimes stage copies in host memory. To limit
// this, the copies in progress have at most the size of the largest tensor so far, or consist of
// one shard. A Broadcaster is not safe for concurrent use.
type Broadcaster struct {
	runtime  *Runtime
	to       func(ctx context.Context, b *pjrt.Buffer, d *pjrt.Device) (*pjrt.Buffer, error) // the plugin's copy
	largest  int                                                                             // bytes of the largest tensor so far
	underWay []*pjrt.Buffer                                                                  // oldest first
	bytes    int                                                                             // of underWay
}

// Spread returns a new Broadcaster.
func (m *Runtime) Spread() *Broadcaster {
	return &Broadcaster{runtime: m, to: func(ctx context.Context, b *pjrt.Buffer, d *pjrt.Device) (*pjrt.Buffer,
		error) {
		return b.CopyToDevice(ctx, d)
	}}
}

// Start starts the copies of a tensor: to each partition of this process without a buffer in all,
// from the partition that source returns. bytes is the size of the tensor. The new buffers are
// stored in all.
func (s *Broadcaster) Start(ctx context.Context, bytes int, all Buffers, source func(partition int) int) error {
	m := s.runtime
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

// copy starts a copy to a device. If the plugin does not support such copies, the data is copied
// through the host.
func (s *Broadcaster) copy(ctx context.Context, b *pjrt.Buffer, d *pjrt.Device) (*pjrt.Buffer, error) {
	made, err := s.to(ctx, b, d)
	if !errors.Is(err, errors.ErrUnsupported) {
		return made, err
	}
	data := make([]byte, b.Bytes())
	if err := b.ToHost(ctx, data); err != nil {
		return nil, err
	}
	return s.runtime.System.Runtime().BufferFromHost(ctx, data, b.DType(), b.Dims(), d)
}

// wait waits for the oldest copy.
func (s *Broadcaster) wait(ctx context.Context) error {
	b := s.underWay[0]
	if err := b.Ready(ctx); err != nil {
		return s.runtime.failed("waiting for a copy", err)
	}
	s.underWay, s.bytes = s.underWay[1:], s.bytes-b.Bytes()
	return nil
}

// Here reports whether all partitions of this process have a buffer.
func (m *Runtime) Here(all Buffers) bool {
	return !slices.ContainsFunc(m.mine, func(partition int) bool { return all[partition] == nil })
}
