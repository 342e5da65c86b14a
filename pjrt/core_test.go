package pjrt_test

import (
	"context"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/internal/plugintest"
	"github.com/tpustrategy/tpustrategy/pjrt"
	"github.com/tpustrategy/tpustrategy/pjrt/leaktest"
)

func TestClosingWhileWorkIsUnderWay(t *testing.T) {
	leaktest.Check(t)
	c := plugintest.CPU(t, 1)
	x := compile(t, c, spin(), pjrt.CompileOptions{})
	b := slow(t, c, x, aWhile)
	ctx, cancel := context.WithTimeout(background, time.Millisecond)
	defer cancel()
	require.ErrorIs(t, b.Ready(ctx), context.DeadlineExceeded)
	done := make(chan error, 1)
	waiting, stop := context.WithCancel(background)
	defer stop()
	go func() { done <- b.Ready(waiting) }()
	time.Sleep(2 * time.Millisecond)
	require.NoError(t, b.Close())
	require.NoError(t, x.Close())
	require.NoError(t, <-done, "a buffer closed meanwhile does not end the wait")
	require.NoError(t, c.Close(), "the client waits for what was abandoned")
}

func TestDroppedObjectsAreEndedByTheCollector(t *testing.T) {
	before := leaktest.Open()
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
		now := leaktest.Open()
		return now["buffer"] == before["buffer"] && now["executable"] == before["executable"] && now["topology"] == before["topology"] && now["client"] <= before["client"]+1
	}, 10*time.Second, 10*time.Millisecond)
}

// A buffer that was dropped does not keep its client open, also before the garbage collector has
// found it; one that is held does.
func TestClientClosesOverDroppedBuffers(t *testing.T) {
	for range 20 {
		c, err := plugintest.Open(t, "cpu").NewClient(background, pjrt.ClientOptions{})
		require.NoError(t, err)
		_, err = c.BufferFromHost(background, make([]byte, 4), pjrt.F32, []int{1}, c.Devices()[0])
		require.NoError(t, err)
		held, err := c.BufferFromHost(background, make([]byte, 4), pjrt.F32, []int{1}, c.Devices()[0])
		require.NoError(t, err)
		var open *pjrt.OpenError
		require.ErrorAs(t, c.Close(), &open)
		assert.Equal(t, 1, open.Buffers)
		require.NoError(t, held.Close())
		require.NoError(t, c.Close())
	}
}
