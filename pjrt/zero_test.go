package pjrt_test

import (
	"context"
	"fmt"
	"reflect"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/internal/test/plugintest"
	"github.com/tpustrategy/tpustrategy/pjrt"
)

// TestZeroValuesDoNotPanic calls every method of every exported type on its zero value, with zero
// arguments.
func TestZeroValuesDoNotPanic(t *testing.T) {
	for _, zero := range []any{
		&pjrt.Buffer{}, &pjrt.Client{}, &pjrt.LoadedExecutable{}, &pjrt.Executable{}, &pjrt.Topology{}, &pjrt.Plugin{},
		&pjrt.Device{},
		&pjrt.DeviceDescription{}, &pjrt.Memory{}, &pjrt.Error{}, &pjrt.PluginError{}, &pjrt.CompileError{},
		&pjrt.InUseError{}, &pjrt.ArgumentError{}, &pjrt.FindError{}, &pjrt.PathError{},
		pjrt.Code(-1), pjrt.PluginReason(99), pjrt.State(9), pjrt.DType(999), pjrt.Version{}, pjrt.ExecutableRecord{},
		pjrt.TensorType{},
	} {
		v := reflect.ValueOf(zero)
		for i := range v.NumMethod() {
			method, name := v.Method(i), fmt.Sprintf("%T.%s", zero, v.Type().Method(i).Name)
			var args []reflect.Value
			for j := range method.Type().NumIn() {
				in := method.Type().In(j)
				if in == reflect.TypeFor[context.Context]() {
					args = append(args, reflect.ValueOf(context.Background()))
				} else if !method.Type().IsVariadic() || j < method.Type().NumIn()-1 {
					args = append(args, reflect.Zero(in))
				}
			}
			assert.NotPanics(t, func() { method.Call(args) }, name)
		}
	}
}

// TestZeroValuesReturnErrClosed checks that a method of a zero value returns an error that matches
// ErrClosed.
func TestZeroValuesReturnErrClosed(t *testing.T) {
	ctx := context.Background()
	var b pjrt.Buffer
	require.ErrorIs(t, b.Ready(ctx), pjrt.ErrClosed)
	require.ErrorIs(t, b.ToHost(ctx, nil), pjrt.ErrClosed)
	_, err := b.IsReady()
	require.ErrorIs(t, err, pjrt.ErrClosed)
	require.NoError(t, b.Close())
	assert.Equal(t, pjrt.Closed, b.State())
	var c pjrt.Client
	require.NoError(t, c.Close())
	_, err = c.Compile(ctx, addOne(1), pjrt.CompileOptions{})
	require.ErrorIs(t, err, pjrt.ErrClosed)
	var x pjrt.LoadedExecutable
	require.ErrorIs(t, x.Execute(ctx, nil, nil, pjrt.ExecuteOptions{}), pjrt.ErrClosed)
	var p pjrt.Plugin
	_, err = p.NewClient(ctx, pjrt.ClientOptions{})
	require.ErrorIs(t, err, pjrt.ErrClosed)

	// A zero Buffer in a list is an ArgumentError.
	client := plugintest.CPU(t, 1)
	real := compile(t, client, function("%x: tensor<4xf32>", "tensor<4xf32>", "return %x : tensor<4xf32>"),
		pjrt.CompileOptions{})
	defer real.Close()
	var argument *pjrt.ArgumentError
	require.ErrorAs(t, real.Execute(ctx, [][]*pjrt.Buffer{{&b}}, [][]*pjrt.Buffer{{nil}}, pjrt.ExecuteOptions{}),
		&argument)
	require.ErrorAs(t, real.Execute(ctx, [][]*pjrt.Buffer{{nil}}, [][]*pjrt.Buffer{{nil}}, pjrt.ExecuteOptions{}),
		&argument)
	in := put(t, client, []float32{1, 2, 3, 4}, pjrt.F32, []int{4}, client.Devices()[0])
	defer in.Close()
	err = real.Execute(ctx, [][]*pjrt.Buffer{{in}}, [][]*pjrt.Buffer{{&b}}, pjrt.ExecuteOptions{})
	require.ErrorAs(t, err, &argument)
	require.Error(t, client.RefillFromHost(ctx, &b, make([]byte, 16), pjrt.F32, []int{4}, client.Devices()[0]))
	_, err = client.BufferFromHost(ctx, make([]byte, 16), pjrt.F32, []int{4}, &pjrt.Device{})
	require.Error(t, err)
}
