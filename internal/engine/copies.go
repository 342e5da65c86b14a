package engine

import (
	"context"
	"errors"
	"runtime"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/tpustrategy/tpustrategy/pjrt"
)

// ShardCopy describes a copy of a shard from a partition of this process to host memory.
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

// CopyShardsToHost copies shards to host memory concurrently, in any order. The caller must not
// change the buffers until CopyShardsToHost returns.
func (m *Runtime) CopyShardsToHost(ctx context.Context, copies []ShardCopy) error {
	group, within := errgroup.WithContext(ctx)
	group.SetLimit(max(2, min(runtime.GOMAXPROCS(0), 8)))
	for _, p := range copies {
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
// process, while the next tensors are computed. Some runtimes stage such copies in host memory.
// Therefore the running copies together never exceed the size of the largest tensor so far, unless
// a single shard does. A Broadcaster is not safe for concurrent use.
type Broadcaster struct {
	runtime      *Runtime
	copyToDevice func(ctx context.Context, b *pjrt.Buffer, d *pjrt.Device) (*pjrt.Buffer, error) // the plugin's copy
	// bytes of the largest tensor so far
	largest int
	running []*pjrt.Buffer // oldest first
	bytes   int            // of running
}

// NewBroadcaster returns a new Broadcaster.
func (m *Runtime) NewBroadcaster() *Broadcaster {
	return &Broadcaster{runtime: m, copyToDevice: func(ctx context.Context, b *pjrt.Buffer, d *pjrt.Device) (*pjrt.Buffer,
		error) {
		return b.CopyToDevice(ctx, d)
	}}
}

// Start starts copies of a tensor to the partitions of this process that have no buffer in all, and
// stores the new buffers in all. source returns the partition from which a partition is copied.
// bytes is the size of the tensor.
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

// copy starts a copy of a buffer to a device. If the plugin cannot copy between devices, the copy
// passes through host memory.
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

// wait waits for the oldest running copy.
func (s *Broadcaster) wait(ctx context.Context) error {
	b := s.running[0]
	if err := b.Ready(ctx); err != nil {
		return s.runtime.wrapError("waiting for a copy", err)
	}
	s.running, s.bytes = s.running[1:], s.bytes-b.Bytes()
	return nil
}

// HasAllBuffers reports whether all has a buffer for each partition of this process.
func (m *Runtime) HasAllBuffers(all Buffers) bool {
	return !slices.ContainsFunc(m.localPartitions, func(partition int) bool { return all[partition] == nil })
}
