package staging_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/internal/staging"
)

func TestPoolLimit(t *testing.T) {
	ctx := context.Background()
	p := staging.New(100)
	defer p.Close()
	a, err := p.Get(ctx, 60)
	require.NoError(t, err)
	require.Len(t, a, 60)
	b, err := p.Get(ctx, 40)
	require.NoError(t, err)
	short, cancel := context.WithTimeout(ctx, 10*time.Millisecond)
	defer cancel()
	_, err = p.Get(short, 1)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	got := make(chan []byte)
	go func() {
		c, err := p.Get(ctx, 50)
		assert.NoError(t, err)
		got <- c
	}()
	p.Put(a)
	c := <-got
	assert.Len(t, c, 50)
	assert.Equal(t, 100, p.Peak(), "the block that came back is used again")
	p.Put(b)
	p.Put(c)

	large, err := p.Get(ctx, 1000)
	require.NoError(t, err)
	large[999] = 1
	assert.Equal(t, 1000, p.Peak(), "what is free goes back first")
	p.Put(large)
	none, err := p.Get(ctx, 0)
	require.NoError(t, err)
	p.Put(none)
}
