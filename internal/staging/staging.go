package staging

import (
	"context"
	"sync"
)

// Pool provides blocks of memory. The total size of the blocks in use does not exceed the limit of
// the pool, except that a single larger block is allowed if no other block is in use. A Pool is
// safe for concurrent use.
type Pool struct {
	limit int

	mu       sync.Mutex
	released chan struct{} // closed when a block is returned
	used     int           // bytes in use
	size     int           // bytes in use or free
	peak     int           // maximum of size
	free     [][]byte
	closed   bool
}

// New returns a pool that provides at most limit bytes at a time.
func New(limit int) *Pool { return &Pool{limit: limit, released: make(chan struct{})} }

// Get returns a block of n bytes with undefined contents. It waits until the limit of the pool
// permits the block. The error is the cause of ctx or an error of the operating system.
func (p *Pool) Get(ctx context.Context, n int) ([]byte, error) {
	for {
		p.mu.Lock()
		if p.used == 0 || p.used+n <= p.limit {
			block, err := p.allocate(n)
			p.mu.Unlock()
			return block, err
		}
		wait := p.released
		p.mu.Unlock()
		select {
		case <-wait:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// allocate returns an unused block of suitable size, or allocates a new block. Before it exceeds
// the limit of the pool, it frees unused blocks. The caller must hold the mutex.
func (p *Pool) allocate(n int) (block []byte, err error) {
	for i, b := range p.free {
		if cap(b) >= n && cap(b) <= 2*n {
			p.free = append(p.free[:i], p.free[i+1:]...)
			p.used += cap(b)
			return b[:n], nil
		}
	}
	for len(p.free) > 0 && p.size+n > p.limit {
		b := p.free[0]
		p.free, p.size = p.free[1:], p.size-cap(b)
		Free(b)
	}
	if block, err = Alloc(n); err != nil {
		return nil, err
	}
	p.used, p.size = p.used+cap(block), p.size+cap(block)
	p.peak = max(p.peak, p.size)
	return block, nil
}

// Put returns a block from Get to the pool. The block must not be used afterwards.
func (p *Pool) Put(block []byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.used -= cap(block)
	if p.closed || p.size > p.limit {
		p.size -= cap(block)
		Free(block)
	} else {
		p.free = append(p.free, block)
	}
	close(p.released)
	p.released = make(chan struct{})
}

// Peak returns the maximum size of all blocks of the pool, in bytes, since the pool was created.
func (p *Pool) Peak() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.peak
}

// Close frees all unused blocks. Blocks in use are freed when they are returned.
func (p *Pool) Close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	for _, b := range p.free {
		p.size -= cap(b)
		Free(b)
	}
	p.free = nil
}
