package pjrt_test

import (
	"errors"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/internal/test/plugintest"
	"github.com/tpustrategy/tpustrategy/pjrt"
	"github.com/tpustrategy/tpustrategy/pjrt/leaktest"
)

func TestExecutableProperties(t *testing.T) {
	leaktest.Check(t)
	c := plugintest.CPU(t, 2)
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
	require.ErrorIs(t, err, errors.ErrUnsupported, "the CPU plugin does not report them")
	_, err = e.ParameterMemoryKinds()
	require.ErrorIs(t, err, pjrt.Unimplemented)
	var pe *pjrt.Error
	require.ErrorAs(t, err, &pe)
	assert.Equal(t, 102, pe.NeedsMinor, "the error contains the required version")
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

func TestLoadSerializedExecutable(t *testing.T) {
	leaktest.Check(t)
	c := plugintest.CPU(t, 2)
	x := compile(t, c, addOne(2), spmd(2))
	b, err := x.Executable().Serialize()
	require.NoError(t, err)
	want, ok := x.Parameters()
	require.True(t, ok)
	require.NoError(t, x.Close())
	plain, err := pjrt.WithoutParameters(b) // the format without parameters
	require.NoError(t, err)
	for _, b := range [][]byte{b, plain} {
		y, err := c.Load(background, b, pjrt.LoadOptions{})
		require.NoError(t, err)
		got, ok := y.Parameters()
		assert.True(t, ok)
		assert.Equal(t, want, got)
		require.NoError(t, y.Close())
	}
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
	for name, bad := range map[string][]byte{"empty": nil, "garbage": []byte("garbage"), "cut short": b[:len(b)-1],
		"head only": b[:20],
		"changed":   append(append([]byte{}, b[:len(b)-100]...), make([]byte, 100)...)} {
		_, err := c.Load(background, bad, pjrt.LoadOptions{})
		require.ErrorAs(t, err, &ce, name)
	}
	tooMany := spmd(3)
	_, err = c.Load(background, b, pjrt.LoadOptions{Compile: &tooMany})
	require.ErrorAs(t, err, &ce)
}

// TestCloseDuringSerialize closes a program while other goroutines serialize it, which reads the
// loaded program.
func TestCloseDuringSerialize(t *testing.T) {
	leaktest.Check(t)
	c := plugintest.CPU(t, 1)
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
