package staging

import (
	"context"
	"sync"
)

// Pool lends memory. No more than its limit is lent at a time, or one block that is larger alone.
// It is safe for concurrent use.
type Pool struct {
	limit int

	mu    sync.Mutex
	wait  chan struct{} // closed when something comes back
	lent  int           // bytes
	held  int           // bytes, lent or free
	peak  int           // of held
	free  [][]byte
	close bool
}

// New returns a pool of a limit in bytes.
func New(limit int) *Pool { return &Pool{limit: limit, wait: make(chan struct{})} }

// Get returns a block of n bytes with undefined contents, when the limit has room for it. The error
// is the cause of ctx's end, or the system's.
func (p *Pool) Get(ctx context.Context, n int) ([]byte, error) {
	for {
		p.mu.Lock()
		if p.lent == 0 || p.lent+n <= p.limit {
			block, err := p.take(n)
			p.mu.Unlock()
			return block, err
		}
		wait := p.wait
		p.mu.Unlock()
		select {
		case <-wait:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// take returns a free block that is not much too large, or a new one. Free blocks go back to the
// system where they would take the pool over its limit.
func (p *Pool) take(n int) (block []byte, err error) {
	for i, b := range p.free {
		if cap(b) >= n && cap(b) <= 2*n {
			p.free = append(p.free[:i], p.free[i+1:]...)
			p.lent += cap(b)
			return b[:n], nil
		}
	}
	for len(p.free) > 0 && p.held+n > p.limit {
		b := p.free[0]
		p.free, p.held = p.free[1:], p.held-cap(b)
		Give(b)
	}
	if block, err = Take(n); err != nil {
		return nil, err
	}
	p.lent, p.held = p.lent+cap(block), p.held+cap(block)
	p.peak = max(p.peak, p.held)
	return block, nil
}

// Put gives a block of Get back. It must not be used any more.
func (p *Pool) Put(block []byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lent -= cap(block)
	if p.close || p.held > p.limit {
		p.held -= cap(block)
		Give(block)
	} else {
		p.free = append(p.free, block)
	}
	close(p.wait)
	p.wait = make(chan struct{})
}

// Peak returns the most bytes that the pool had at a time.
func (p *Pool) Peak() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.peak
}

// Close gives all memory back to the system, now or when it comes back.
func (p *Pool) Close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.close = true
	for _, b := range p.free {
		p.held -= cap(b)
		Give(b)
	}
	p.free = nil
}
