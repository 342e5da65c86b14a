package engine

import (
	"context"
	"errors"
	"runtime"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/tpustrategy/tpustrategy/pjrt"
)

// ShardCopy is a copy of a shard to the host: of the shard of a tensor that one partition of this
// process has.
type ShardCopy struct {
	// Name is the name of the tensor in errors.
	Name      string
	Layout    *Layout
	From      Buffers
	Partition int
	// Into receives the shard without padding. Its length is [Layout.UnpaddedBytes].
	Into []byte
	// Done is called when Into is complete, from any goroutine. It may be nil.
	Done func()
}

// CopyShardsToHost copies shards to the host, several concurrently and in any order. The caller must not
// change the buffers until CopyShardsToHost returns.
func (m *Runtime) CopyShardsToHost(ctx context.Context, parts []ShardCopy) error {
	group, within := errgroup.WithContext(ctx)
	group.SetLimit(max(2, min(runtime.GOMAXPROCS(0), 8)))
	for _, p := range parts {
		group.Go(func() error {
			if err := context.Cause(within); err != nil {
				return err
			}
			if err := m.GetShard(within, p.Layout, p.From, p.Partition, p.Into); err != nil {
				return m.wrapError(p.Name, err)
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
	runtime      *Runtime
	copyToDevice func(ctx context.Context, b *pjrt.Buffer, d *pjrt.Device) (*pjrt.Buffer, error) // the plugin's copy
	largest      int                                                                             // bytes of the largest tensor so far
	running      []*pjrt.Buffer                                                                  // oldest first
	bytes        int                                                                             // of running
}

// NewBroadcaster returns a new Broadcaster.
func (m *Runtime) NewBroadcaster() *Broadcaster {
	return &Broadcaster{runtime: m, copyToDevice: func(ctx context.Context, b *pjrt.Buffer, d *pjrt.Device) (*pjrt.Buffer,
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
	for _, partition := range m.localPartitions {
		if all[partition] != nil {
			continue
		}
		from := all[source(partition)]
		for len(s.running) > 0 && s.bytes+from.Bytes() > s.largest {
			if err := s.wait(ctx); err != nil {
				return err
			}
		}
		b, err := s.copy(ctx, from, m.All[partition])
		if err != nil {
			return m.wrapError("copying to "+m.formatPartition(partition), err)
		}
		all[partition] = b
		s.running, s.bytes = append(s.running, b), s.bytes+b.Bytes()
	}
	return nil
}

// copy starts a copy to a device. If the plugin does not support such copies, the data is copied
// through the host.
func (s *Broadcaster) copy(ctx context.Context, b *pjrt.Buffer, d *pjrt.Device) (*pjrt.Buffer, error) {
	made, err := s.copyToDevice(ctx, b, d)
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
	b := s.running[0]
	if err := b.Ready(ctx); err != nil {
		return s.runtime.wrapError("waiting for a copy", err)
	}
	s.running, s.bytes = s.running[1:], s.bytes-b.Bytes()
	return nil
}

// HasAllBuffers reports whether all partitions of this process have a buffer.
func (m *Runtime) HasAllBuffers(all Buffers) bool {
	return !slices.ContainsFunc(m.localPartitions, func(partition int) bool { return all[partition] == nil })
}
