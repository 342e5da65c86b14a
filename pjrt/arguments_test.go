package pjrt_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/internal/test/plugintest"
	"github.com/tpustrategy/tpustrategy/pjrt"
	"github.com/tpustrategy/tpustrategy/pjrt/leaktest"
)

func TestExecuteRejectsInvalidBuffers(t *testing.T) {
	type args = [][]*pjrt.Buffer
	donate := func(which ...bool) pjrt.ExecuteOptions { return pjrt.ExecuteOptions{Donate: which} }
	for name, c := range map[string]struct {
		change func(t *testing.T, b *fixture) pjrt.ExecuteOptions
		device int
		index  int
		result bool
		is     error
	}{
		"no devices": {func(t *testing.T, b *fixture) pjrt.ExecuteOptions { b.args = nil; return donate() }, -1, -1,
			false, nil},
		"a device too many": {func(t *testing.T, b *fixture) pjrt.ExecuteOptions {
			b.args = append(b.args, b.args[0])
			return pjrt.ExecuteOptions{}
		}, -1, -1, false, nil},
		"an argument missing": {func(t *testing.T,
			b *fixture) pjrt.ExecuteOptions {
			b.args = args{{b.a}}
			return pjrt.ExecuteOptions{}
		}, 0, -1, false, nil},
		"an argument too many": {func(t *testing.T, b *fixture) pjrt.ExecuteOptions {
			b.args = args{{b.a, b.y, b.y}}
			return pjrt.ExecuteOptions{}
		}, 0, -1, false, nil},
		"a nil argument": {func(t *testing.T,
			b *fixture) pjrt.ExecuteOptions {
			b.args[0][1] = nil
			return pjrt.ExecuteOptions{}
		}, 0, 1, false, nil},
		"a closed argument": {func(t *testing.T,
			b *fixture) pjrt.ExecuteOptions {
			b.y.Close()
			return pjrt.ExecuteOptions{}
		}, 0, 1, false, pjrt.ErrClosed},
		"a donated argument": {func(t *testing.T, b *fixture) pjrt.ExecuteOptions {
			r := rows(1, 2)
			require.NoError(t, b.x.Execute(background, b.args, r, donate(true, false)))
			t.Cleanup(func() { closeAll(r) })
			return pjrt.ExecuteOptions{}
		}, 0, 0, false, pjrt.ErrDonated},
		"another client's argument": {func(t *testing.T, b *fixture) pjrt.ExecuteOptions {
			c := plugintest.CPU(t, 1)
			b.args[0][0] = put(t, c, make([]float32, 6), pjrt.F32, []int{2, 3}, c.Devices()[0])
			return pjrt.ExecuteOptions{}
		}, 0, 0, false, nil},
		"another device's argument": {func(t *testing.T, b *fixture) pjrt.ExecuteOptions {
			b.args[0][0] = put(t, b.c, make([]float32, 6), pjrt.F32, []int{2, 3}, b.d1)
			return pjrt.ExecuteOptions{}
		}, 0, 0, false, nil},
		"another type of the same size": {func(t *testing.T, b *fixture) pjrt.ExecuteOptions {
			b.args[0][1] = put(t, b.c, make([]uint32, 4), pjrt.U32, []int{4}, b.d0)
			return pjrt.ExecuteOptions{}
		}, 0, 1, false, nil},
		"another type of another size": {func(t *testing.T, b *fixture) pjrt.ExecuteOptions {
			b.args[0][1] = put(t, b.c, make([]int64, 4), pjrt.S64, []int{4}, b.d0)
			return pjrt.ExecuteOptions{}
		}, 0, 1, false, nil},
		"another shape of the same size": {func(t *testing.T, b *fixture) pjrt.ExecuteOptions {
			b.args[0][0] = put(t, b.c, make([]float32, 6), pjrt.F32, []int{3, 2}, b.d0)
			return pjrt.ExecuteOptions{}
		}, 0, 0, false, nil},
		"another rank": {func(t *testing.T, b *fixture) pjrt.ExecuteOptions {
			b.args[0][0] = put(t, b.c, make([]float32, 6), pjrt.F32, []int{2, 3, 1}, b.d0)
			return pjrt.ExecuteOptions{}
		}, 0, 0, false, nil},
		"an empty tensor": {func(t *testing.T, b *fixture) pjrt.ExecuteOptions {
			b.args[0][0] = put(t, b.c, []float32{}, pjrt.F32, []int{0, 3}, b.d0)
			return pjrt.ExecuteOptions{}
		}, 0, 0, false, nil},
		"arguments swapped": {func(t *testing.T, b *fixture) pjrt.ExecuteOptions {
			b.args = args{{b.y, b.a}}
			return pjrt.ExecuteOptions{}
		}, 0, 0, false, nil},
		"a launch id of 33 bits": {func(t *testing.T,
			b *fixture) pjrt.ExecuteOptions {
			return pjrt.ExecuteOptions{LaunchID: 1 << 32}
		}, -1, -1, false, nil},
		"Donate too short": {func(t *testing.T, b *fixture) pjrt.ExecuteOptions { return donate(true) }, -1, -1,
			false, nil},
		"Donate too long": {func(t *testing.T, b *fixture) pjrt.ExecuteOptions { return donate(true, true, true) },
			-1, -1, false, nil},
		"no results": {func(t *testing.T,
			b *fixture) pjrt.ExecuteOptions {
			b.results = nil
			return pjrt.ExecuteOptions{}
		}, -1, -1, true, nil},
		"a result missing": {func(t *testing.T,
			b *fixture) pjrt.ExecuteOptions {
			b.results = rows(1, 1)
			return pjrt.ExecuteOptions{}
		}, 0, -1, true, nil},
		"a live result": {func(t *testing.T, b *fixture) pjrt.ExecuteOptions {
			b.results = args{{b.a, nil}}
			return pjrt.ExecuteOptions{}
		}, 0, 0, true, pjrt.ErrBusy},
		"a live result that is no argument": {func(t *testing.T, b *fixture) pjrt.ExecuteOptions {
			b.results = args{{nil, put(t, b.c, make([]int32, 4), pjrt.S32, []int{4}, b.d0)}}
			return donate(true, false)
		}, 0, 1, true, pjrt.ErrBusy},
		"a donated buffer as two results": {func(t *testing.T, b *fixture) pjrt.ExecuteOptions {
			b.results = args{{b.a, b.a}}
			return donate(true, false)
		}, 0, 1, true, pjrt.ErrBusy},
		"a closed buffer as two results": {func(t *testing.T, b *fixture) pjrt.ExecuteOptions {
			closed := put(t, b.c, []float32{1}, pjrt.F32, nil, b.d0)
			closed.Close()
			b.results = args{{closed, closed}}
			return pjrt.ExecuteOptions{}
		}, 0, 1, true, pjrt.ErrBusy},
		"another client's result": {func(t *testing.T, b *fixture) pjrt.ExecuteOptions {
			c := plugintest.CPU(t, 1)
			foreign := put(t, c, []float32{1}, pjrt.F32, nil, c.Devices()[0])
			foreign.Close()
			b.results = args{{foreign, nil}}
			return pjrt.ExecuteOptions{}
		}, 0, 0, true, nil},
	} {
		t.Run(name, func(t *testing.T) {
			leaktest.Check(t)
			b := newFixture(t)
			good := append([]*pjrt.Buffer{}, b.args[0]...)
			o := c.change(t, b)
			err := b.x.Execute(background, b.args, b.results, o)
			var ae *pjrt.ArgumentError
			require.ErrorAs(t, err, &ae)
			assert.Equal(t, [3]any{c.device, c.index, c.result}, [3]any{ae.Device, ae.Index, ae.IsResult}, "%v", err)
			if c.is != nil {
				require.ErrorIs(t, err, c.is)
			}
			// Nothing was executed, donated or left held: the good call still works.
			if name == "a closed argument" || name == "a donated argument" {
				return
			}
			r := rows(1, 2)
			defer func() { closeAll(r) }()
			require.NoError(t, b.x.Execute(background, [][]*pjrt.Buffer{good}, r, donate(true, true)))
		})
	}
}

func TestExecuteRejectsDonatedBufferInTwoArguments(t *testing.T) {
	leaktest.Check(t)
	c := plugintest.CPU(t, 1)
	x := compile(t, c, function("%x: tensor<2xf32> {jax.buffer_donor = true}, %y: tensor<2xf32>", "tensor<2xf32>",
		"%o = stablehlo.add %x, %y : tensor<2xf32>\n return %o : tensor<2xf32>"), pjrt.CompileOptions{})
	b := put(t, c, []float32{1, 2}, pjrt.F32, []int{2}, c.Devices()[0])
	args, r := [][]*pjrt.Buffer{{b, b}}, rows(1, 1)
	defer func() { closeAll(r) }()
	for name, donate := range map[string][]bool{"donated and used": {true, false}, "used and donated": {false, true},
		"donated twice": {true, true}} {
		err := x.Execute(background, args, r, pjrt.ExecuteOptions{Donate: donate})
		require.ErrorIs(t, err, pjrt.ErrBusy, name)
		assert.Contains(t, err.Error(), "also")
		assert.Equal(t, pjrt.Live, b.State())
	}
	require.NoError(t, x.Execute(background, args, r, pjrt.ExecuteOptions{}))
	assert.Equal(t, []float32{2, 4}, get[float32](t, r[0][0], 2))
}
