package pjrt_test

import (
	"errors"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/internal/plugintest"
	"github.com/tpustrategy/tpustrategy/pjrt"
	"github.com/tpustrategy/tpustrategy/pjrt/leaktest"
)

func TestStepLoopWithDonatedStateOnEightDevices(t *testing.T) {
	leaktest.Check(t)
	const n = 8
	c := cpu(t, n)
	x := compile(t, c, addOne(n), spmd(n))
	params, known := x.Parameters()
	require.True(t, known)
	assert.Equal(t, []pjrt.TensorType{{DType: pjrt.F32, Dims: []int{1, 8}}}, params)
	state := rows(n, 1)
	for d, dev := range x.AddressableDevices() {
		state[d][0] = put(t, c, make([]float32, 8), pjrt.F32, []int{1, 8}, dev)
	}
	before := state[3][0]
	for range 10 {
		require.NoError(t, x.Execute(background, state, state, pjrt.ExecuteOptions{Donate: []bool{true}}))
	}
	require.Same(t, before, state[3][0], "the Go buffer is filled again")
	for _, row := range state {
		assert.Equal(t, []float32{10, 10, 10, 10, 10, 10, 10, 10}, get[float32](t, row[0], 8))
	}
}

func TestPluginAndClientDescribeThemselves(t *testing.T) {
	leaktest.Check(t)
	p := plugintest.Open(t, "cpu")
	assert.GreaterOrEqual(t, p.APIVersion().Minor, 57)
	assert.Contains(t, p.Attributes(), "stablehlo_current_version")
	assert.NotEmpty(t, p.Extensions())
	c := cpu(t, 4)
	assert.Same(t, p, c.Plugin())
	assert.Equal(t, "cpu", c.PlatformName())
	assert.NotEmpty(t, c.PlatformVersion())
	assert.Equal(t, 0, c.ProcessIndex())
	require.Len(t, c.Devices(), 4)
	assert.Equal(t, c.Devices(), c.AddressableDevices())
	for i, d := range c.Devices() {
		assert.Equal(t, i, d.ID())
		assert.True(t, d.Addressable())
		assert.Equal(t, i, d.LocalHardwareID())
		assert.Equal(t, "cpu", d.Kind())
		assert.NotEmpty(t, d.String())
		assert.NotEmpty(t, d.DebugString())
		require.NotNil(t, d.DefaultMemory())
		assert.Equal(t, "device", d.DefaultMemory().Kind())
		assert.Contains(t, d.DefaultMemory().Devices(), d)
		_, err := d.Memory("pinned_host")
		require.NoError(t, err)
		_, err = d.Memory("hbm")
		require.ErrorIs(t, err, pjrt.NotFound)
		_, err = d.MemoryStats()
		require.ErrorIs(t, err, pjrt.Unimplemented, "the CPU plugin has no allocator statistics")
	}
	d, err := c.LookupDevice(2)
	require.NoError(t, err)
	assert.Same(t, c.Devices()[2], d)
	_, err = c.LookupDevice(4)
	require.ErrorIs(t, err, pjrt.NotFound)
	a, err := c.DefaultDeviceAssignment(2, 2)
	require.NoError(t, err)
	assert.Len(t, a, 2)
	var ce *pjrt.CompileError
	_, err = c.DefaultDeviceAssignment(3, 2)
	require.ErrorAs(t, err, &ce)
	_, err = c.DefaultDeviceAssignment(-1, 2)
	require.ErrorAs(t, err, &ce)
}

func TestClientTopologyDescribesTheSameDevices(t *testing.T) {
	leaktest.Check(t)
	c := cpu(t, 2)
	topology, err := c.Topology()
	require.NoError(t, err)
	require.Len(t, topology.Devices(), 2)
	assert.Equal(t, c.Devices()[1].Kind(), topology.Devices()[1].Kind())
	var open *pjrt.OpenError
	require.ErrorAs(t, c.Close(), &open)
	assert.Equal(t, 1, open.Topologies)
	require.NoError(t, topology.Close())
	_, err = topology.Serialize()
	require.ErrorIs(t, err, pjrt.ErrClosed)
}

func TestExecutableTellsAboutTheProgram(t *testing.T) {
	leaktest.Check(t)
	c := cpu(t, 2)
	x := compile(t, c, addOne(2), spmd(2))
	e := x.Executable()
	name, err := e.Name()
	require.NoError(t, err)
	assert.Contains(t, name, "add_one")
	print1, err := e.Fingerprint()
	require.NoError(t, err)
	other := compile(t, c, many(2, 3), spmd(2))
	print2, err := other.Executable().Fingerprint()
	require.NoError(t, err)
	assert.NotEqual(t, print1, print2)
	r, p, o, err := e.Counts()
	require.NoError(t, err)
	assert.Equal(t, [3]int{1, 2, 1}, [3]int{r, p, o})
	types, err := e.OutputDTypes()
	require.NoError(t, err)
	assert.Equal(t, []pjrt.DType{pjrt.F32}, types)
	dims, err := e.OutputDims()
	require.NoError(t, err)
	assert.Equal(t, [][]int{{1, 8}}, dims)
	stats, err := e.MemoryStats()
	require.NoError(t, err)
	assert.EqualValues(t, 32, stats.Arguments)
	assert.EqualValues(t, 32, stats.Alias, "the donated argument is the result")
	cost, err := e.CostAnalysis()
	require.NoError(t, err)
	assert.Contains(t, cost, "flops")
	_, err = e.OutputMemoryKinds()
	require.ErrorIs(t, err, errors.ErrUnsupported, "the CPU plugin does not know")
	_, err = e.ParameterMemoryKinds()
	require.ErrorIs(t, err, pjrt.Unimplemented)
	var pe *pjrt.Error
	require.ErrorAs(t, err, &pe)
	assert.Equal(t, 102, pe.NeedsMinor, "it says which version has it")
	program, err := e.OptimizedProgram()
	require.NoError(t, err)
	assert.Equal(t, pjrt.FormatHLOWithConfig, program.Format)
	_, err = e.SizeOfGeneratedCode()
	require.NoError(t, err)
	require.ErrorIs(t, e.Close(), pjrt.ErrBorrowed)
	require.NoError(t, x.Close())
	_, err = e.Name()
	require.ErrorIs(t, err, pjrt.ErrClosed)
}

// What a compiler optimized has a schedule, which a second compilation does not survive.
func TestAnOptimizedProgramIsNotCompiledAgain(t *testing.T) {
	leaktest.Check(t)
	c := cpu(t, 1)
	program, err := compile(t, c, addOne(1), pjrt.CompileOptions{}).Executable().OptimizedProgram()
	require.NoError(t, err)
	module, err := pjrt.Field(program.Code, 1)
	require.NoError(t, err)
	for _, p := range []pjrt.Program{program, {Code: module, Format: pjrt.FormatHLO}} {
		_, err = c.Compile(background, p, pjrt.CompileOptions{})
		var ce *pjrt.CompileError
		require.ErrorAs(t, err, &ce)
		assert.Contains(t, err.Error(), "schedule")
	}
}

func TestSerializedExecutableRunsAgain(t *testing.T) {
	leaktest.Check(t)
	c := cpu(t, 2)
	x := compile(t, c, addOne(2), spmd(2))
	b, err := x.Executable().Serialize()
	require.NoError(t, err)
	require.NoError(t, x.Close())
	y, err := c.Load(background, b, pjrt.LoadOptions{})
	require.NoError(t, err)
	defer y.Close()
	state := rows(2, 1)
	for d, dev := range y.AddressableDevices() {
		state[d][0] = put(t, c, make([]float32, 8), pjrt.F32, []int{1, 8}, dev)
	}
	require.NoError(t, y.Execute(background, state, state, pjrt.ExecuteOptions{Donate: []bool{true}}))
	assert.Equal(t, float32(1), get[float32](t, state[1][0], 8)[7])

	_, err = y.Executable().Serialize()
	require.ErrorIs(t, err, pjrt.ErrDeserialized)

	other := spmd(2)
	other.DeviceAssignment = [][]int{{1, 0}}
	z, err := c.Load(background, b, pjrt.LoadOptions{Compile: &other})
	require.NoError(t, err)
	defer z.Close()
	assert.Equal(t, 1, z.AddressableDevices()[0].ID(), "the assignment can be replaced on loading")

	var ce *pjrt.CompileError
	for name, bad := range map[string][]byte{"empty": nil, "garbage": []byte("garbage"), "cut short": b[:len(b)-1], "head only": b[:20],
		"changed": append(append([]byte{}, b[:len(b)-100]...), make([]byte, 100)...)} {
		_, err := c.Load(background, bad, pjrt.LoadOptions{})
		require.ErrorAs(t, err, &ce, name)
	}
	tooMany := spmd(3)
	_, err = c.Load(background, b, pjrt.LoadOptions{Compile: &tooMany})
	require.ErrorAs(t, err, &ce)
}

// What a plugin tells about a program it reads from the loaded one.
func TestAProgramCanBeClosedWhileItIsSerialized(t *testing.T) {
	leaktest.Check(t)
	c := cpu(t, 1)
	for range 20 {
		x := compile(t, c, addOne(1), pjrt.CompileOptions{})
		var started, ended sync.WaitGroup
		for range 2 {
			started.Add(1)
			ended.Go(func() {
				var err error
				for n := 0; err == nil; n++ {
					_, err = x.Executable().Serialize()
					if n == 0 {
						started.Done()
					}
				}
				assert.ErrorIs(t, err, pjrt.ErrClosed)
			})
		}
		started.Wait()
		require.NoError(t, x.Close())
		ended.Wait()
	}
}

func TestDumpDirGetsTheProgram(t *testing.T) {
	c := cpu(t, 1)
	dir := t.TempDir()
	compile(t, c, two(), pjrt.CompileOptions{DumpDir: dir, Overrides: map[string]any{"xla_dump_hlo_as_text": true}})
	assert.NotEmpty(t, glob(t, dir+"/*"))
}
