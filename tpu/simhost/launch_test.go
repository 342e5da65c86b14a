package simhost_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/internal/test/plugintest"
	"github.com/tpustrategy/tpustrategy/pjrt"
	"github.com/tpustrategy/tpustrategy/tpu/simhost"
	"github.com/tpustrategy/tpustrategy/tpu/system"
)

func TestLaunchUsesArgumentsOfAllProcesses(t *testing.T) {
	c, err := simhost.New(plugintest.System(t, 4), simhost.Options{Processes: 2})
	require.NoError(t, err)
	systems := open(t, c, 2)
	// The order of the assignment differs from the order of the processes.
	x := []system.Executable{compile(t, systems[0], "sum", 3, 0, 2, 1), compile(t, systems[1], "sum", 3, 0, 2, 1)}
	for round := range 3 {
		for i, err := range each(2, func(i int) error {
			if i == round%2 {
				time.Sleep(20 * time.Millisecond) // late, within the patience
			}
			got, err := launch(context.Background(), systems[i], x[i], float32(10*i+round))
			assert.Equal(t, float32(2*round+2*(10+round)), got)
			return err
		}) {
			require.NoError(t, err, "process %d", i)
		}
	}
}

func TestDifferentPrograms(t *testing.T) {
	c, err := simhost.New(plugintest.System(t, 4), simhost.Options{Processes: 2})
	require.NoError(t, err)
	systems := open(t, c, 2)
	x := []system.Executable{compile(t, systems[0], "sum", 0, 1, 2, 3), compile(t, systems[1], "total", 0, 1, 2, 3)}
	start := time.Now()
	for _, err := range each(2, func(i int) error {
		_, err := launch(context.Background(), systems[i], x[i], 1)
		return err
	}) {
		var different *simhost.ProgramError
		require.ErrorAs(t, err, &different)
		require.Len(t, different.Launching, 2)
		assert.Equal(t, "sum", different.Launching[0].Program)
		assert.Equal(t, "total", different.Launching[1].Program)
		assert.NotEqual(t, different.Launching[0].Fingerprint, different.Launching[1].Fingerprint)
	}
	assert.Less(t, time.Since(start), 10*time.Second)
}

func TestKillDuringLaunch(t *testing.T) {
	c, err := simhost.New(plugintest.System(t, 4), simhost.Options{Processes: 2})
	require.NoError(t, err)
	systems := open(t, c, 2)
	x := []system.Executable{compile(t, systems[0], "sum", 0, 1, 2, 3), compile(t, systems[1], "sum", 0, 1, 2, 3)}
	for _, err := range each(2, func(i int) error {
		_, err := launch(context.Background(), systems[i], x[i], 1)
		return err
	}) {
		require.NoError(t, err)
	}
	time.AfterFunc(20*time.Millisecond, func() { c.Kill(1) })
	_, err = launch(context.Background(), systems[0], x[0], 1)
	var lost *simhost.LostError
	require.ErrorAs(t, err, &lost)
	assert.Equal(t, 1, lost.Process)
	assert.Equal(t, 1, lost.Launches)
	_, err = launch(context.Background(), systems[1], x[1], 1)
	assert.ErrorContains(t, err, "has ended")
}

func TestProgramOfOneProcess(t *testing.T) {
	c, err := simhost.New(plugintest.System(t, 8), simhost.Options{Processes: 2})
	require.NoError(t, err)
	systems := open(t, c, 2)
	x := compile(t, systems[1], "sum", 4, 5, 6, 7)
	got, err := launch(context.Background(), systems[1], x, 3)
	require.NoError(t, err)
	assert.Equal(t, float32(12), got)
	_, err = systems[0].Runtime().Compile(context.Background(),
		pjrt.Program{Code: []byte(replaceAll(sum, "%NAME", "sum")), Format: "mlir", Trusted: true},
		pjrt.CompileOptions{Partitions: 4, DeviceAssignment: [][]int{{4, 5, 6, 7}}, SPMD: true, Shardy: true})
	assert.ErrorContains(t, err, "none of process 0")
}
