package simhost_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/internal/test/plugintest"
	"github.com/tpustrategy/tpustrategy/pjrt"
	"github.com/tpustrategy/tpustrategy/tpu/simhost"
	"github.com/tpustrategy/tpustrategy/tpu/system"
)

func TestDevicesOfProcesses(t *testing.T) {
	c, err := simhost.New(plugintest.System(t, 8), simhost.Options{Processes: 4})
	require.NoError(t, err)
	for i, sys := range open(t, c, 4) {
		assert.Equal(t, i, sys.Process())
		assert.Equal(t, 4, sys.NumProcesses())
		assert.Len(t, sys.Runtime().Devices(), 8)
		for id := range 8 {
			assert.Equal(t, id/2 == i, sys.Addressable(id))
			device, _ := sys.Device(id)
			b, err := sys.Runtime().BufferFromHost(context.Background(), make([]byte, 4), pjrt.F32, nil, device)
			if id/2 != i {
				require.ErrorContains(t, err, "does not belong to process")
				continue
			}
			require.NoError(t, err)
			require.NoError(t, b.Close())
		}
	}
}

func TestMissingProcess(t *testing.T) {
	var c *simhost.Cluster
	var errs []error
	// On a busy machine, several processes may be missing when a short timeout ends.
	for _, limit := range []time.Duration{150 * time.Millisecond, 1500 * time.Millisecond, 15 * time.Second} {
		var err error
		c, err = simhost.New(plugintest.System(t, 4),
			simhost.Options{Processes: 4, Names: []string{"red", "green", "blue", "grey"}})
		require.NoError(t, err)
		ctx, cancel := context.WithTimeout(context.Background(), limit)
		defer cancel()
		start := time.Now()
		errs = each(4, func(i int) error {
			if i == 2 {
				return nil // this process does not start
			}
			_, err := c.Open(ctx, i)
			return err
		})
		assert.Less(t, time.Since(start), limit+5*time.Second)
		if missing := (*simhost.MissingError)(nil); !errors.As(errs[0], &missing) || len(missing.Missing) == 1 {
			break
		}
	}
	for i, err := range errs {
		if i == 2 {
			continue
		}
		var missing *simhost.MissingError
		require.ErrorAs(t, err, &missing)
		assert.Equal(t, []int{2}, missing.Missing)
		assert.ErrorIs(t, err, context.DeadlineExceeded)
		assert.ErrorContains(t, err, "timed out waiting for blue")
	}
	_, err := c.Open(context.Background(), 2)
	assert.ErrorContains(t, err, "blue", "a cluster that failed to start stays so")
}

func TestLateProcessBreaksCluster(t *testing.T) {
	c, err := simhost.New(plugintest.System(t, 4), simhost.Options{Processes: 2, Patience: 100 * time.Millisecond})
	require.NoError(t, err)
	systems := open(t, c, 2)
	x := []system.Executable{compile(t, systems[0], "sum", 0, 1, 2, 3), compile(t, systems[1], "sum", 0, 1, 2, 3)}
	_, err = launch(context.Background(), systems[0], x[0], 1)
	var missing *simhost.MissingError
	require.ErrorAs(t, err, &missing)
	assert.Equal(t, []int{1}, missing.Missing)
	assert.ErrorContains(t, err, `launch of "sum"`)
	_, again := launch(context.Background(), systems[1], x[1], 1)
	assert.Equal(t, err, again)
}

func TestInvalidCalls(t *testing.T) {
	b := plugintest.System(t, 4)
	for _, o := range []simhost.Options{{}, {Processes: 3}, {Processes: -1}, {Processes: 8},
		{Processes: 2, Names: []string{"one"}}, {Processes: 2, MeshShape: []int{3, 1, 1, 1}}} {
		_, err := simhost.New(b, o)
		assert.Error(t, err, "%+v", o)
	}
	c, err := simhost.New(b, simhost.Options{Processes: 2})
	require.NoError(t, err)
	_, err = c.Open(context.Background(), 2)
	assert.ErrorContains(t, err, "process 2 of 2")
	systems := open(t, c, 2)
	_, err = c.Open(context.Background(), 0)
	assert.ErrorContains(t, err, "once")
	x, err := systems[0].Runtime().Compile(context.Background(),
		pjrt.Program{Code: []byte(replaceAll(sum, "%NAME", "sum")), Format: "mlir", Trusted: true},
		pjrt.CompileOptions{Partitions: 4, DeviceAssignment: [][]int{{0, 1, 2, 3}}, SPMD: true, Shardy: true})
	require.NoError(t, err)
	assert.ErrorContains(t, systems[0].Close(), "1 executables are open")
	assert.ErrorContains(t, x.Execute(context.Background(), nil, nil, pjrt.ExecuteOptions{}), "for the 2 devices")
	require.NoError(t, x.Close())
	require.NoError(t, x.Close())
}

func TestKillDuringStartup(t *testing.T) {
	for _, dead := range []int{0, 2} { // one that is open, and one that never was
		c, err := simhost.New(plugintest.System(t, 4), simhost.Options{Processes: 4})
		require.NoError(t, err)
		time.AfterFunc(50*time.Millisecond, func() { c.Kill(dead) })
		for _, err := range each(2, func(i int) error {
			_, err := c.Open(context.Background(), i)
			return err
		}) {
			var lost *simhost.LostError
			require.ErrorAs(t, err, &lost)
			assert.Equal(t, dead, lost.Process)
			assert.ErrorContains(t, err, "start-up")
		}
	}
}
