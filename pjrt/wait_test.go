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

// slow starts a program that takes a while and answers its result.
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

func TestWaitsEndWithTheirContextAndTheWorkGoesOn(t *testing.T) {
	leaktest.Check(t)
	c := plugintest.CPU(t, 1)
	x := compile(t, c, spin(), pjrt.CompileOptions{})
	why := errors.New("enough")
	var ctx context.Context
	var b *pjrt.Buffer
	var start time.Time
	var enqueued time.Duration
	dst := make([]byte, 4)
	rounds := int32(aWhile)
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
		if over && rounds < 20*aWhile { // another process had this one's turn while the program ran
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
	require.NoError(t, b.Ready(live), "a wait that is left does not disturb others")
	took := time.Since(start)
	assert.Less(t, enqueued, took/2)
	require.NoError(t, b.Ready(ctx), "contents that are there need no wait")
	assert.Equal(t, []int32{rounds}, get[int32](t, b, 1))
	assert.Equal(t, make([]byte, 4), dst, "an abandoned transfer writes nothing later")
	require.NoError(t, b.Close())
}

func TestManyWaitersOnOneBuffer(t *testing.T) {
	leaktest.Check(t)
	c := plugintest.CPU(t, 1)
	x := compile(t, c, spin(), pjrt.CompileOptions{})
	b := slow(t, c, x, aWhile)
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

// aWhile is rounds for some tenths of a second.
const aWhile = 1500
