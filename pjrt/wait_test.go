package pjrt_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/internal/test/plugintest"
	"github.com/tpustrategy/tpustrategy/pjrt"
	"github.com/tpustrategy/tpustrategy/pjrt/leaktest"
)

// slow starts a program that runs for a long time and returns its first result.
func slow(t *testing.T, c *pjrt.Client, x *pjrt.LoadedExecutable, n int32) *pjrt.Buffer {
	t.Helper()
	r := rows(1, 2)
	arg := put(t, c, []int32{n}, pjrt.S32, nil, c.Devices()[0])
	require.NoError(t, x.Execute(background, [][]*pjrt.Buffer{{arg}}, r, pjrt.ExecuteOptions{}))
	require.NoError(t, arg.Close())
	require.NoError(t, r[0][1].Close())
	t.Cleanup(func() { r[0][0].Close() })
	return r[0][0]
}

func TestReadyReturnsWhenContextEnds(t *testing.T) {
	leaktest.Check(t)
	c := plugintest.CPU(t, 1)
	x := compile(t, c, spin(), pjrt.CompileOptions{})
	why := errors.New("enough")
	var ctx context.Context
	var b *pjrt.Buffer
	var start time.Time
	var enqueued time.Duration
	dst := make([]byte, 4)
	rounds := int32(spinRounds)
	for {
		start = time.Now()
		b = slow(t, c, x, rounds)
		enqueued = time.Since(start)
		ready, err := b.IsReady()
		require.NoError(t, err)
		var cancel context.CancelCauseFunc
		ctx, cancel = context.WithCancelCause(background)
		time.AfterFunc(5*time.Millisecond, func() { cancel(why) })
		during, before, read := b.Ready(ctx), b.Ready(ctx), b.ToHost(ctx, dst)
		over, err := b.IsReady()
		require.NoError(t, err)
		if over && rounds < 20*spinRounds { // this process was suspended while the program ran
			rounds *= 4
			clear(dst)
			continue
		}
		require.False(t, ready, "Execute does not wait")
		require.ErrorIs(t, during, why, "cancelled during the wait")
		require.ErrorIs(t, before, why, "cancelled before the wait")
		require.ErrorIs(t, read, why)
		break
	}
	live, stop := context.WithCancel(background)
	defer stop()
	require.NoError(t, b.Ready(live), "a canceled wait does not affect others")
	took := time.Since(start)
	assert.Less(t, enqueued, took/2)
	require.NoError(t, b.Ready(ctx), "available contents need no wait")
	assert.Equal(t, []int32{rounds}, get[int32](t, b, 1))
	assert.Equal(t, make([]byte, 4), dst, "a canceled transfer does not write")
	require.NoError(t, b.Close())
}

func TestConcurrentReady(t *testing.T) {
	leaktest.Check(t)
	c := plugintest.CPU(t, 1)
	x := compile(t, c, spin(), pjrt.CompileOptions{})
	b := slow(t, c, x, spinRounds)
	ctx, cancel := context.WithCancel(background)
	defer cancel()
	var wg sync.WaitGroup
	for range 50 {
		wg.Go(func() { assert.NoError(t, b.Ready(ctx)) })
		wg.Go(func() {
			short, cancel := context.WithTimeout(ctx, time.Millisecond)
			defer cancel()
			_ = b.Ready(short)
		})
	}
	wg.Wait()
	require.NoError(t, b.Close())
}

// spinRounds is the argument of spin for which it runs for some tenths of a second.
const spinRounds = 1500
