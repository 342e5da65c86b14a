package lowering_test

import (
	"strconv"
	"testing"

	"github.com/gomlx/compute"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/lowering"
)

// chainOfCalls creates functions that each call the previous function, up to the given depth. call
// adds the call of g to f. chainOfCalls returns the last function and the first error.
func chainOfCalls(t *testing.T, b compute.Builder, length int, call func(f, g compute.Function,
	x compute.Value) error) (compute.Function, error) {
	t.Helper()
	var last compute.Function
	for i := range length + 1 {
		f, err := b.NewFunction("f" + strconv.Itoa(i))
		require.NoError(t, err)
		x := must(t)(f.Parameter("x", f32(2), nil))
		if last != nil {
			if err := call(f, last, x); err != nil {
				return nil, err
			}
		}
		require.NoError(t, f.Return([]compute.Value{x}, nil))
		last = f
	}
	return last, nil
}

func TestCallsNestOnlySoDeep(t *testing.T) {
	direct := func(f, g compute.Function, x compute.Value) error {
		_, err := f.Call(g, x)
		return err
	}
	b := lowering.New(lowering.Options{}).Builder("b")
	last, err := chainOfCalls(t, b, 255, direct)
	require.NoError(t, err)
	x := must(t)(b.Main().Parameter("x", f32(2), nil))
	for range 300 { // consecutive calls are not nested calls
		require.NoError(t, direct(b.Main(), last, x))
	}
	require.NoError(t, b.Main().Return([]compute.Value{x}, nil))
	_, err = b.Compile()
	require.NoError(t, err)

	_, err = chainOfCalls(t, lowering.New(lowering.Options{}).Builder("b"), 257, direct)
	var op *lowering.OpError
	require.ErrorAs(t, err, &op)
	assert.Equal(t, "Call", op.Op)
	assert.ErrorContains(t, err, `in function "f257": the target "f256" makes calls 256 deep already`)

	_, err = chainOfCalls(t, lowering.New(lowering.Options{}).Builder("b"), 257, func(f, g compute.Function,
		x compute.Value) (err error) {
		closure(t, f, func(c compute.Function) []compute.Value {
			err = direct(c, g, x)
			return []compute.Value{must(t)(c.Constant([]bool{true}))}
		})
		return err
	})
	assert.ErrorContains(t, err, "256 deep", "a call from a closure is one of the function around it")
}
