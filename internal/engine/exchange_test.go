package engine

import (
	"bytes"
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/internal/test/plugintest"
	"github.com/tpustrategy/tpustrategy/pjrt"
	"github.com/tpustrategy/tpustrategy/tpu/system"
)

// libtpu aborts on collectives over a part of a slice, so the exchange uses all devices.
func TestTheExchangeCompilesForAOTSlices(t *testing.T) {
	path := plugintest.Path(t, "tpu")
	if !plugintest.InChild(t) {
		out, err := plugintest.Child(t, append(plugintest.TPUEnv(), "TPU_LOG_DIR=disabled")...)
		require.NoError(t, err, out)
		return
	}
	ctx := context.Background()
	for _, name := range []string{"v5e:4x4", "v4:2x2x4", "v5p:4x4x4", "2x v5e:4x4"} {
		t.Run(name, func(t *testing.T) {
			slice, err := system.Describe(ctx, name, system.DescribeOptions{Plugin: path})
			require.NoError(t, err)
			defer slice.Close()
			m := NewDescribedRuntime(slice, Options{Groups: slice.Topology().DeviceIDs()})
			x, err := slice.Compile(ctx, pjrt.Program{Code: exchangeText(m.NumDevices(), firstWords), Trusted: true},
				m.Options(1))
			require.NoError(t, err)
			stats, err := x.MemoryStats()
			require.NoError(t, err)
			assert.GreaterOrEqual(t, stats.Outputs, int64(4*firstWords*m.NumDevices()))
			require.NoError(t, x.Close())
		})
	}
}

func FuzzMessages(f *testing.F) {
	f.Add([]byte(nil))
	f.Add([]byte{3, 0, 0})
	f.Add([]byte{255, 255, 255, 255, 1})
	f.Add(appendMessage(nil, "barrier start", nil))
	f.Add(appendMessage(nil, "", []byte("value")))
	f.Fuzz(func(t *testing.T, data []byte) {
		call, value, ok := parseMessage(data)
		if ok && !bytes.Equal(appendMessage(nil, call, value), data) {
			t.Fatalf("%q and %q do not write %q back", call, value, data)
		}
	})
}
