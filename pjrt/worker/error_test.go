package worker_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/internal/test/plugintest"
	"github.com/tpustrategy/tpustrategy/pjrt"
	"github.com/tpustrategy/tpustrategy/pjrt/worker"
)

func TestCompilerAborts(t *testing.T) {
	client := plugintest.CPU(t, 1)
	c := newCompiler(t, worker.Options{Env: []string{"XLA_FLAGS=--no_such_flag=1"}})
	_, err := c.Compile(context.Background(), client, addOne, pjrt.CompileOptions{})
	var died *worker.Error
	require.ErrorAs(t, err, &died)
	assert.Equal(t, worker.Died, died.Reason)
	assert.NotEmpty(t, died.State)
	assert.Contains(t, died.StderrTail, "no_such_flag", "the end of its output")
	assert.NotContains(t, died.StderrTail, "goroutine")
}

func TestCompilerRunsOutOfMemory(t *testing.T) {
	client := plugintest.CPU(t, 1)
	c := newCompiler(t, worker.Options{MemoryBytes: 200 << 20})
	_, err := c.Compile(context.Background(), client, sorts(1000), pjrt.CompileOptions{})
	require.Error(t, err)
	// With the address sanitizer, the memory may be insufficient to load the plugin.
	if died := (*worker.Error)(nil); errors.As(err, &died) {
		assert.Equal(t, worker.Died, died.Reason)
	} else {
		assert.ErrorContains(t, err, "cannot be loaded")
	}
	requireNoWorkers(t)
}

func TestTimeoutStopsCompiler(t *testing.T) {
	client := plugintest.CPU(t, 1)
	program := sorts(7000)
	c := newCompiler(t, worker.Options{Timeout: 1500 * time.Millisecond})
	start := time.Now()
	_, err := c.Compile(context.Background(), client, program, pjrt.CompileOptions{})
	var late *worker.Error
	require.ErrorAs(t, err, &late)
	assert.Equal(t, worker.TimedOut, late.Reason)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	assert.Less(t, time.Since(start), 8*time.Second)
	requireNoWorkers(t)

	why := errors.New("enough")
	ctx, cancel := context.WithCancelCause(context.Background())
	time.AfterFunc(500*time.Millisecond, func() { cancel(why) })
	_, err = newCompiler(t, worker.Options{}).Compile(ctx, client, program, pjrt.CompileOptions{})
	require.ErrorIs(t, err, why)
	require.False(t, errors.As(err, new(*worker.Error)), "the caller canceled the compilation")
	requireNoWorkers(t)
}

func TestCompilerErrorsAreReturned(t *testing.T) {
	client := plugintest.CPU(t, 1)
	c := newCompiler(t, worker.Options{})
	_, err := c.Compile(context.Background(), client,
		pjrt.Program{Code: []byte("module { func.func @f() { return } }")}, pjrt.CompileOptions{})
	var compiler *pjrt.Error
	require.ErrorAs(t, err, &compiler)
	assert.Equal(t, "compile", compiler.Op)
	_, err = c.Compile(context.Background(), client, addOne, pjrt.CompileOptions{Partitions: 2})
	var ours *pjrt.CompileError
	require.ErrorAs(t, err, &ours)
	assert.Equal(t, "Replicas", ours.Field)
}
