package prochost_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/internal/test/prochost"
	"github.com/tpustrategy/tpustrategy/pjrt"
	"github.com/tpustrategy/tpustrategy/tpu/simhost"
	"github.com/tpustrategy/tpustrategy/tpu/system"
)

func TestHostsSeeAllDevicesAndAddressTheirOwn(t *testing.T) {
	m := listen(t, 8, prochost.Options{})
	for i, sys := range open(t, m, "run", 4) {
		assert.Equal(t, i, sys.Process())
		assert.Equal(t, 4, sys.NumProcesses())
		assert.Equal(t, "cpu", sys.Platform())
		for id := range 8 {
			assert.Equal(t, id/2 == i, sys.Addressable(id))
			device, ok := sys.Device(id)
			require.True(t, ok)
			b, err := sys.Runtime().BufferFromHost(context.Background(), make([]byte, 4), pjrt.F32, nil, device)
			if id/2 != i {
				require.ErrorContains(t, err, "is not of host")
				continue
			}
			require.NoError(t, err)
			require.NoError(t, b.Close())
		}
	}
	assert.Equal(t, []int{0, 1, 2, 3}, m.Present("run"))
}

func TestALaunchRunsOnceWithEverybodysArguments(t *testing.T) {
	m := listen(t, 4, prochost.Options{})
	systems := open(t, m, "run", 2)
	// The device assignment differs from the order of the hosts.
	x := []system.Executable{compile(t, systems[0], "sum", 3, 0, 2, 1), compile(t, systems[1], "sum", 3, 0, 2, 1)}
	for round := range 3 {
		for i, err := range each(2, func(i int) error {
			if i == round%2 {
				time.Sleep(20 * time.Millisecond) // late, but within the timeout
			}
			got, err := launch(context.Background(), systems[i], x[i], float32(10*i+round))
			assert.Equal(t, float32(2*round+2*(10+round)), got)
			return err
		}) {
			require.NoError(t, err, "host %d", i)
		}
	}
}

func TestADonatedArgumentTakesTheResult(t *testing.T) {
	m := listen(t, 4, prochost.Options{})
	systems := open(t, m, "run", 2)
	x := []system.Executable{compile(t, systems[0], "sum", 0, 1, 2, 3), compile(t, systems[1], "sum", 0, 1, 2, 3)}
	for _, err := range each(2, func(i int) error {
		ctx := context.Background()
		rows, err := put(ctx, systems[i], x[i], 1)
		if err != nil {
			return err
		}
		for range 3 { // totals 4, 16, 64
			if err := x[i].Execute(ctx, rows, rows, pjrt.ExecuteOptions{Donate: []bool{true}}); err != nil {
				return err
			}
		}
		results := [][]*pjrt.Buffer{{nil}, {nil}}
		if err := x[i].Execute(ctx, rows, results, pjrt.ExecuteOptions{Donate: []bool{true}}); err != nil {
			return err
		}
		for _, row := range rows {
			assert.NotEqual(t, pjrt.Live, row[0].State())
		}
		got, err := total(ctx, results)
		assert.Equal(t, float32(256), got)
		return err
	}) {
		require.NoError(t, err)
	}
}

func TestWrongBuffersAreRefusedAndNothingIsLaunched(t *testing.T) {
	m := listen(t, 4, prochost.Options{})
	sys := open(t, m, "run", 1)[0]
	x := compile(t, sys, "sum", 0, 1, 2, 3)
	ctx := context.Background()
	rows, err := put(ctx, sys, x, 1)
	require.NoError(t, err)
	other, err := sys.Runtime().BufferFromHost(ctx, make([]byte, 8), pjrt.F32, []int{2}, x.AddressableDevices()[1])
	require.NoError(t, err)
	empty := func() [][]*pjrt.Buffer { return [][]*pjrt.Buffer{{nil}, {nil}, {nil}, {nil}} }
	donate := pjrt.ExecuteOptions{Donate: []bool{true}}
	for name, c := range map[string]struct {
		args, results [][]*pjrt.Buffer
		opts          pjrt.ExecuteOptions
		want          string
	}{
		"too few devices": {rows[:3], empty(), donate, "3 and 4 lists for the 4 devices"},
		"too few arguments": {[][]*pjrt.Buffer{rows[0], rows[1], rows[2], nil}, empty(), donate,
			"arguments of device 3: 0 buffers"},
		"no argument at all": {[][]*pjrt.Buffer{nil, nil, nil, nil}, empty(), pjrt.ExecuteOptions{}, "arguments"},
		"nil": {[][]*pjrt.Buffer{{nil}, rows[1], rows[2], rows[3]}, empty(), donate,
			"argument 0 of device 0: it is nil"},
		"another device": {[][]*pjrt.Buffer{rows[1], rows[0], rows[2], rows[3]}, empty(), donate,
			"argument 0 of device 0"},
		"another shape": {[][]*pjrt.Buffer{rows[0], {other}, rows[2], rows[3]}, empty(), donate,
			"argument 0 of device 1: F32[2] on device 1"},
		"too few results": {rows, [][]*pjrt.Buffer{{nil}, {nil}, {nil}, nil}, donate, "results of device 3: 0 places"},
		"a live result":   {rows, rows, pjrt.ExecuteOptions{}, "result 0 of device 0: F32[1] on device 0 is live"},
		"a result twice": {rows, [][]*pjrt.Buffer{rows[0], rows[0], {nil}, {nil}}, donate,
			"result 0 of device 1: the buffer is that of another"},
		"a wrong donate": {rows, empty(), pjrt.ExecuteOptions{Donate: []bool{true, true}}, "2 entries of Donate"},
		"all of another shape": {[][]*pjrt.Buffer{rows[0], rows[1], rows[2], {other}}, empty(), donate,
			"argument 0 of device 3"},
	} {
		t.Run(name, func(t *testing.T) {
			err := x.Execute(ctx, c.args, c.results, c.opts)
			require.ErrorContains(t, err, c.want)
			for _, row := range rows {
				assert.Equal(t, pjrt.Live, row[0].State())
			}
		})
	}
	require.NoError(t, other.Close())
	require.NoError(t, x.Execute(ctx, rows, rows, donate))
	require.NoError(t, rows[0][0].Close())
	var wrong *pjrt.ArgumentError
	err = x.Execute(ctx, rows, empty(), donate)
	require.ErrorAs(t, err, &wrong)
	require.ErrorIs(t, err, pjrt.ErrClosed)
	for _, row := range rows {
		require.NoError(t, row[0].Close())
	}
}

func TestDifferentProgramsAreAnErrorAtOnce(t *testing.T) {
	m := listen(t, 4, prochost.Options{})
	systems := open(t, m, "run", 2)
	x := []system.Executable{compile(t, systems[0], "sum", 0, 1, 2, 3), compile(t, systems[1], "total", 0, 1, 2, 3)}
	start := time.Now()
	for _, err := range each(2, func(i int) error {
		_, err := launch(context.Background(), systems[i], x[i], 1)
		return err
	}) {
		var different *simhost.ProgramError
		require.ErrorAs(t, err, &different)
		require.Len(t, different.Launching, 2)
		assert.Equal(t, "host 0", different.Launching[0].Name)
		assert.Equal(t, "total", different.Launching[1].Program)
	}
	assert.Less(t, time.Since(start), 10*time.Second)
}

func TestProgramsStayCompiledForTheNextRun(t *testing.T) {
	m := listen(t, 4, prochost.Options{})
	life := func(run string, hosts int) {
		systems := open(t, m, run, hosts)
		x := make([]system.Executable, hosts)
		for i, err := range each(hosts, func(i int) (err error) {
			x[i], err = compileSum(systems[i], "sum", 0, 1, 2, 3)
			return err
		}) {
			require.NoError(t, err)
			require.NoError(t, x[i].Close())
		}
	}
	life("one", 2)
	require.Equal(t, 1, m.Compiled())
	life("two", 4)
	require.Equal(t, 1, m.Compiled())
}

func TestACompilersErrorIsThatOfTheMachine(t *testing.T) {
	m := listen(t, 4, prochost.Options{})
	sys := open(t, m, "run", 1)[0]
	compile := func(code string, o pjrt.CompileOptions) error {
		_, err := sys.Runtime().Compile(context.Background(), pjrt.Program{Code: []byte(code), Format: "mlir", Trusted: true},
			o)
		return err
	}
	var refused *pjrt.Error
	require.ErrorAs(t, compile("module {", pjrt.CompileOptions{DeviceAssignment: [][]int{{0}}}), &refused)
	require.ErrorIs(t, refused, pjrt.Unknown)
	var wrong *pjrt.CompileError
	require.ErrorAs(t, compile("", pjrt.CompileOptions{DeviceAssignment: [][]int{{0}}}), &wrong)
	require.ErrorAs(t, compile("module {}", pjrt.CompileOptions{DeviceAssignment: [][]int{{0}},
		Overrides: map[string]any{"x": []int{1}}}), &wrong)
	require.ErrorContains(t, compile("module {}", pjrt.CompileOptions{}), "device assignment")
}
