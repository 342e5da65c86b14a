package pjrt_test

import (
	"context"
	"errors"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/internal/test/plugintest"
	"github.com/tpustrategy/tpustrategy/pjrt"
	"github.com/tpustrategy/tpustrategy/pjrt/leaktest"
)

func TestCloseDuringWork(t *testing.T) {
	leaktest.Check(t)
	// WithPlatformDefaults a busy machine, the wait may start after Close, or the program may end before the first
	// wait. The test then repeats with longer times.
	pause, rounds := 2*time.Millisecond, int32(spinRounds)
	for try := 0; ; try++ {
		c := plugintest.CPU(t, 1)
		x := compile(t, c, spin(), pjrt.CompileOptions{})
		b := slow(t, c, x, rounds)
		ctx, cancel := context.WithTimeout(background, time.Millisecond)
		defer cancel()
		left := b.Ready(ctx)
		done := make(chan error, 1)
		waiting, stop := context.WithCancel(background)
		defer stop()
		go func() { done <- b.Ready(waiting) }()
		time.Sleep(pause)
		require.NoError(t, b.Close())
		require.NoError(t, x.Close())
		waited := <-done
		require.NoError(t, c.Close(), "the client waits for what was abandoned")
		if (left == nil || errors.Is(waited, pjrt.ErrClosed)) && try < 3 {
			pause, rounds = 4*pause, 3*rounds
			continue
		}
		require.ErrorIs(t, left, context.DeadlineExceeded)
		require.NoError(t, waited, "a buffer closed meanwhile does not end the wait")
		return
	}
}

func TestGarbageCollectorReleasesUnreachableObjects(t *testing.T) {
	before := leaktest.OpenObjects()
	func() {
		p := plugintest.CPU(t, 1).Plugin()
		c, err := p.NewClient(background, pjrt.ClientOptions{Options: map[string]any{"cpu_device_count": 1}})
		require.NoError(t, err)
		x, err := c.Compile(background, two(), pjrt.CompileOptions{})
		require.NoError(t, err)
		_, err = c.Topology()
		require.NoError(t, err)
		_, err = c.BufferFromHost(background, make([]byte, 4), pjrt.F32, nil, c.Devices()[0])
		require.NoError(t, err)
		_ = x.Outputs()
	}()
	assert.Eventually(t, func() bool {
		runtime.GC()
		now := leaktest.OpenObjects()
		return now["buffer"] == before["buffer"] && now["executable"] == before["executable"] &&
			now["topology"] == before["topology"] && now["client"] <= before["client"]+1
	}, 10*time.Second, 10*time.Millisecond)
}

// TestUnreachableBuffersDoNotKeepClientOpen closes a client with one unreachable buffer, which the
// garbage collector may not have found yet, and one reachable buffer.
func TestUnreachableBuffersDoNotKeepClientOpen(t *testing.T) {
	for range 20 {
		c, err := plugintest.Open(t, "cpu").NewClient(background, pjrt.ClientOptions{})
		require.NoError(t, err)
		_, err = c.BufferFromHost(background, make([]byte, 4), pjrt.F32, []int{1}, c.Devices()[0])
		require.NoError(t, err)
		held, err := c.BufferFromHost(background, make([]byte, 4), pjrt.F32, []int{1}, c.Devices()[0])
		require.NoError(t, err)
		var open *pjrt.InUseError
		require.ErrorAs(t, c.Close(), &open)
		assert.Equal(t, 1, open.Buffers)
		require.NoError(t, held.Close())
		require.NoError(t, c.Close())
	}
}
