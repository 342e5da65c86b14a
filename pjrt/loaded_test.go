package pjrt_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/internal/test/plugintest"
	"github.com/tpustrategy/tpustrategy/pjrt"
	"github.com/tpustrategy/tpustrategy/pjrt/leaktest"
)

func TestCompileRejectsTupleParameter(t *testing.T) {
	leaktest.Check(t)
	_, err := plugintest.CPU(t, 1).Compile(background, function("%x: tuple<tensor<4xf32>>", "tensor<4xf32>",
		"%o = stablehlo.get_tuple_element %x[0] : (tuple<tensor<4xf32>>) -> tensor<4xf32>\n return %o : tensor<4xf32>"),
		pjrt.CompileOptions{})
	var ce *pjrt.CompileError
	require.ErrorAs(t, err, &ce)
}

func TestReplicasRunOnTheirAssignedDevices(t *testing.T) {
	leaktest.Check(t)
	c := plugintest.CPU(t, 4)
	x := compile(t, c, function("", "tensor<ui32>",
		"%o = stablehlo.replica_id : tensor<ui32>\n return %o : tensor<ui32>"),
		pjrt.CompileOptions{Replicas: 3, DeviceAssignment: [][]int{{2}, {0}, {3}}})
	r := rows(3, 1)
	require.NoError(t, x.Execute(background, rows(3, 0), r, pjrt.ExecuteOptions{LaunchID: 7}))
	defer closeAll(r)
	for d, dev := range x.AddressableDevices() {
		id := get[uint32](t, r[d][0], 1)[0]
		assert.Equal(t, []int{2, 0, 3}[id], dev.ID())
		assert.Same(t, dev, r[d][0].Device())
	}
}

func TestDeviceAssignment(t *testing.T) {
	leaktest.Check(t)
	c := plugintest.CPU(t, 4)
	for _, want := range [][][]int{{{3}}, {{1, 0}, {3, 2}}, {{2}, {1}, {0}}, {{3, 1, 2, 0}}} {
		x := compile(t, c, two(), pjrt.CompileOptions{Replicas: len(want), Partitions: len(want[0]),
			SPMD: len(want[0]) > 1, DeviceAssignment: want})
		got, err := x.DeviceAssignment()
		require.NoError(t, err)
		assert.Equal(t, want, got)
		require.NoError(t, x.Close())
		_, err = x.DeviceAssignment()
		require.ErrorIs(t, err, pjrt.ErrClosed)
	}
}

func TestCompileReturnsWhenContextEnds(t *testing.T) {
	leaktest.Check(t)
	c := plugintest.CPU(t, 1)
	// The program takes long to compile.
	var body strings.Builder
	for i := range 400 {
		fmt.Fprintf(&body, "%%v%d = stablehlo.dot_general %%x, %%x, contracting_dims = [1] x [0] : "+
			"(tensor<%[2]dx%[2]dxf32>, tensor<%[2]dx%[2]dxf32>) -> tensor<%[2]dx%[2]dxf32>\n%%t%[1]d = stablehlo.tanh "+
			"%%v%[1]d : tensor<%[2]dx%[2]dxf32>\n", i, 33)
	}
	body.WriteString("return %t399 : tensor<33x33xf32>")
	p := function("%x: tensor<33x33xf32>", "tensor<33x33xf32>", body.String())
	ctx, cancel := context.WithCancel(background)
	cancel()
	_, err := c.Compile(ctx, p, pjrt.CompileOptions{})
	require.ErrorIs(t, err, context.Canceled)
	ctx, cancel = context.WithTimeout(background, time.Millisecond)
	defer cancel()
	start := time.Now()
	_, err = c.Compile(ctx, p, pjrt.CompileOptions{})
	if err == nil {
		t.Skipf("compiled within a millisecond (%v)", time.Since(start))
	}
	require.ErrorIs(t, err, context.DeadlineExceeded)
	// The client waits for the compiler and discards its result.
	require.NoError(t, c.Close())
}

func TestFirstExecuteDeterminesUnknownParameters(t *testing.T) {
	leaktest.Check(t)
	b := newFixture(t)
	pjrt.ForgetParameters(b.x)
	_, known := b.x.Parameters()
	require.False(t, known)
	var ae *pjrt.ArgumentError
	uneven := [][]*pjrt.Buffer{{b.a, nil}}
	require.ErrorAs(t, b.x.Execute(background, uneven, b.results, pjrt.ExecuteOptions{}), &ae)
	require.Error(t, b.x.Execute(background, [][]*pjrt.Buffer{{b.a}}, b.results, pjrt.ExecuteOptions{}),
		"the plugin checks the number")
	require.NoError(t, b.x.Execute(background, b.args, b.results, pjrt.ExecuteOptions{}))
	types, known := b.x.Parameters()
	require.True(t, known)
	assert.Equal(t, []pjrt.TensorType{{DType: pjrt.F32, Dims: []int{2, 3}}, {DType: pjrt.S32, Dims: []int{4}}}, types)
	assert.Equal(t, types, b.x.Outputs())
	assert.Equal(t, 2, b.x.NumOutputs())
	closeAll(b.results)
	require.ErrorAs(t, b.x.Execute(background, [][]*pjrt.Buffer{{b.y, b.a}}, b.results, pjrt.ExecuteOptions{}), &ae)
}

func TestCompileRejectsResultWithTooManyDimensions(t *testing.T) {
	leaktest.Check(t)
	deep := "tensor<4x" + strings.Repeat("1x", 64) + "f32>"
	var refused *pjrt.CompileError
	_, err := plugintest.CPU(t, 1).Compile(background, function("%x: tensor<4xf32>", deep,
		"%o = stablehlo.reshape %x : (tensor<4xf32>) -> "+deep+"\n return %o : "+deep), pjrt.CompileOptions{})
	require.ErrorAs(t, err, &refused)
	assert.ErrorContains(t, err, "rank 65")
}
