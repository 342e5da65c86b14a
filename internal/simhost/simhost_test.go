package simhost_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/internal/plugintest"
	"github.com/tpustrategy/tpustrategy/internal/simhost"
	"github.com/tpustrategy/tpustrategy/pjrt"
	"github.com/tpustrategy/tpustrategy/tpu/system"
)

func base(t testing.TB, devices int) *system.System {
	t.Helper()
	sys, err := system.Open(context.Background(), system.Options{CPUDevices: devices, Plugin: plugintest.Path(t, "cpu")})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, sys.Close()) })
	return sys
}

// each runs a function for every process at once and returns their errors.
func each(n int, f func(process int) error) []error {
	errs := make([]error, n)
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() { errs[i] = f(i) })
	}
	wg.Wait()
	return errs
}

func open(t testing.TB, c *simhost.Cluster, n int) []*system.System {
	t.Helper()
	systems := make([]*system.System, n)
	for i, err := range each(n, func(i int) (err error) {
		systems[i], err = c.Open(context.Background(), i)
		return err
	}) {
		require.NoError(t, err, "process %d", i)
		t.Cleanup(func() { require.NoError(t, systems[i].Close()) })
	}
	return systems
}

// sum adds the devices' numbers: each device has one, each receives the total.
const sum = `module @%NAME attributes {mhlo.num_replicas = 1 : i32, mhlo.num_partitions = 4 : i32} {
  sdy.mesh @mesh = <["d"=4]>
  func.func public @main(%x: tensor<4xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"d"}]>}) -> (tensor<f32> {sdy.sharding = #sdy.sharding<@mesh, []>}) {
    %zero = stablehlo.constant dense<0.0> : tensor<f32>
    %y = stablehlo.reduce(%x init: %zero) applies stablehlo.add across dimensions = [0] : (tensor<4xf32>, tensor<f32>) -> tensor<f32>
    return %y : tensor<f32>
  }
}
`

func compile(t testing.TB, sys *system.System, name string, ids ...int) system.Executable {
	t.Helper()
	code := []byte(replaceAll(sum, "%NAME", name))
	x, err := sys.Runtime().Compile(context.Background(), pjrt.Program{Code: code, Format: "mlir"}, pjrt.CompileOptions{
		Replicas: 1, Partitions: len(ids), DeviceAssignment: [][]int{ids}, SPMD: true, Shardy: true,
	})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, x.Close()) })
	return x
}

// launch runs the sum over the process's numbers and returns the total.
func launch(ctx context.Context, sys *system.System, x system.Executable, value float32) (float32, error) {
	var args, results [][]*pjrt.Buffer
	for _, d := range x.AddressableDevices() {
		b, err := sys.Runtime().BufferFromHost(ctx, bytesOf(value), pjrt.F32, []int{1}, d)
		if err != nil {
			return 0, err
		}
		defer b.Close()
		args, results = append(args, []*pjrt.Buffer{b}), append(results, []*pjrt.Buffer{nil})
	}
	if err := x.Execute(ctx, args, results, pjrt.ExecuteOptions{}); err != nil {
		return 0, err
	}
	out := make([]byte, 4)
	err := results[0][0].ToHost(ctx, out)
	for _, row := range results {
		err = errors.Join(err, row[0].Close())
	}
	return floatOf(out), err
}

func TestProcessesSeeAllDevicesAndAddressTheirOwn(t *testing.T) {
	c, err := simhost.New(base(t, 8), simhost.Options{Processes: 4})
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
				require.ErrorContains(t, err, "is not of process")
				continue
			}
			require.NoError(t, err)
			require.NoError(t, b.Close())
		}
	}
}

func TestALaunchRunsOnceWithEverybodysArguments(t *testing.T) {
	c, err := simhost.New(base(t, 4), simhost.Options{Processes: 2})
	require.NoError(t, err)
	systems := open(t, c, 2)
	// The order of the assignment is not that of the processes.
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

func TestAMissingProcessIsNamedAtTheDeadline(t *testing.T) {
	c, err := simhost.New(base(t, 4), simhost.Options{Processes: 4, Names: []string{"red", "green", "blue", "grey"}})
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(context.Background(), 150*time.Millisecond)
	defer cancel()
	start := time.Now()
	errs := each(4, func(i int) error {
		if i == 2 {
			return nil // does not start
		}
		_, err := c.Open(ctx, i)
		return err
	})
	assert.Less(t, time.Since(start), 5*time.Second)
	for i, err := range errs {
		if i == 2 {
			continue
		}
		var missing *simhost.MissingError
		require.ErrorAs(t, err, &missing)
		assert.Equal(t, []int{2}, missing.Missing)
		assert.ErrorIs(t, err, context.DeadlineExceeded)
		assert.ErrorContains(t, err, "waited in vain for blue")
	}
	_, err = c.Open(context.Background(), 2)
	assert.ErrorContains(t, err, "blue", "a cluster that failed to start stays so")
}

func TestALateProcessIsNamedAndTheClusterBroken(t *testing.T) {
	c, err := simhost.New(base(t, 4), simhost.Options{Processes: 2, Patience: 100 * time.Millisecond})
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

func TestDifferentProgramsAreAnErrorAtOnce(t *testing.T) {
	c, err := simhost.New(base(t, 4), simhost.Options{Processes: 2})
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

func TestADeathEndsTheWaitOfTheOthers(t *testing.T) {
	c, err := simhost.New(base(t, 4), simhost.Options{Processes: 2})
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

func TestAProgramOfOneProcessWaitsForNobody(t *testing.T) {
	c, err := simhost.New(base(t, 8), simhost.Options{Processes: 2})
	require.NoError(t, err)
	systems := open(t, c, 2)
	x := compile(t, systems[1], "sum", 4, 5, 6, 7)
	got, err := launch(context.Background(), systems[1], x, 3)
	require.NoError(t, err)
	assert.Equal(t, float32(12), got)
	_, err = systems[0].Runtime().Compile(context.Background(), pjrt.Program{Code: []byte(replaceAll(sum, "%NAME", "sum")), Format: "mlir"},
		pjrt.CompileOptions{Partitions: 4, DeviceAssignment: [][]int{{4, 5, 6, 7}}, SPMD: true, Shardy: true})
	assert.ErrorContains(t, err, "process 0 has none of its devices")
}

func TestWrongUsesAreRefused(t *testing.T) {
	b := base(t, 4)
	for _, o := range []simhost.Options{{}, {Processes: 3}, {Processes: -1}, {Processes: 8}, {Processes: 2, Names: []string{"one"}}, {Processes: 2, MeshShape: []int{3, 1, 1, 1}}} {
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
	x, err := systems[0].Runtime().Compile(context.Background(), pjrt.Program{Code: []byte(replaceAll(sum, "%NAME", "sum")), Format: "mlir"},
		pjrt.CompileOptions{Partitions: 4, DeviceAssignment: [][]int{{0, 1, 2, 3}}, SPMD: true, Shardy: true})
	require.NoError(t, err)
	assert.ErrorContains(t, systems[0].Close(), "1 executables are open")
	assert.ErrorContains(t, x.Execute(context.Background(), nil, nil, pjrt.ExecuteOptions{}), "for the 2 devices")
	require.NoError(t, x.Close())
	require.NoError(t, x.Close())
}
