package worker_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/internal/test/plugintest"
	"github.com/tpustrategy/tpustrategy/pjrt"
	"github.com/tpustrategy/tpustrategy/pjrt/worker"
	"github.com/tpustrategy/tpustrategy/tpu/system"
)

// stop and damages are transforms of the worker in these tests.
var stop = pjrt.Transform{Name: "stop", Stage: pjrt.AfterScheduler,
	Apply: func([]byte) ([]byte, error) { return nil, errors.New("stopped by a pass") }}

var damages = pjrt.Transform{Name: "damages", Stage: pjrt.AfterScheduler, Apply: func(module []byte) ([]byte, error) {
	seed, err := strconv.ParseUint(os.Getenv("TPUSTRATEGY_TEST_SEED"), 10, 64)
	return damage(module, seed), err
}}

func TestProbe(t *testing.T) {
	plugintest.Path(t, "tpu")
	if !plugintest.InChild(t) {
		out, err := plugintest.Child(t, plugintest.TPUEnv()...)
		require.NoError(t, err, out)
		require.NotContains(t, out, "--- SKIP")
		return
	}
	ctx := context.Background()
	slice, err := system.Describe(ctx, "v5e:2x2", system.DescribeOptions{})
	require.NoError(t, err)
	defer slice.Close()
	c := newCompiler(t, worker.Options{})
	for _, stage := range []pjrt.Stage{pjrt.BeforeScheduler, pjrt.AfterScheduler} {
		module, err := c.CompileUntil(ctx, slice.Description(), addOne, pjrt.CompileOptions{}, stage)
		require.NoError(t, err)
		assert.Contains(t, string(module), "fusion")
	}
	_, err = c.CompileUntil(ctx, slice.Description(), module("()", "nonsense"), pjrt.CompileOptions{}, pjrt.AfterScheduler)
	assert.ErrorContains(t, err, "custom op 'nonsense' is unknown", "a program that fails before the stage")
	_, err = newCompiler(t, worker.Options{Transforms: []string{"stop"}}).CompileTopology(ctx, slice.Description(),
		addOne, pjrt.CompileOptions{})
	assert.ErrorContains(t, err, "stopped by a pass")
	_, err = newCompiler(t, worker.Options{Transforms: []string{"other"}}).CompileTopology(ctx, slice.Description(),
		addOne, pjrt.CompileOptions{})
	assert.ErrorContains(t, err, `the worker's program has no transform "other"`)
	checkMutations(t, 12, func(seed uint64) (io.Closer, error) {
		c := newCompiler(t, worker.Options{Transforms: []string{"damages"}, Timeout: 20 * time.Second,
			Env: []string{fmt.Sprint("TPUSTRATEGY_TEST_SEED=", seed)}})
		return c.CompileTopology(ctx, slice.Description(), addOne, pjrt.CompileOptions{})
	})
}

func TestTransformsWithUnsupportedPlugin(t *testing.T) {
	client, err := plugintest.Open(t, "cpu").NewClient(context.Background(), pjrt.ClientOptions{})
	require.NoError(t, err)
	defer client.Close()
	_, err = newCompiler(t, worker.Options{Transforms: []string{"stop"}}).Compile(context.Background(), client, addOne,
		pjrt.CompileOptions{})
	assert.ErrorIs(t, err, errors.ErrUnsupported)
}
