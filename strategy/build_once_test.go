package strategy_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/pjrt"
	"github.com/tpustrategy/tpustrategy/pjrt/leaktest"
	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/tpu/system"
)

// slowCompiler blocks each compilation until it is released.
type slowCompiler struct {
	begun atomic.Int64
	goOn  chan struct{}
}

func (c *slowCompiler) Compile(ctx context.Context, client *pjrt.Client, p pjrt.Program,
	o pjrt.CompileOptions) (*pjrt.LoadedExecutable, error) {
	c.begun.Add(1)
	<-c.goOn
	return client.Compile(ctx, p, o)
}

func slowStrategy(t *testing.T) (*strategy.TPUStrategy, *slowCompiler) {
	leaktest.Check(t)
	compiler := &slowCompiler{goOn: make(chan struct{})}
	sys, err := system.Open(context.Background(), system.Options{CPUDevices: 2})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, sys.Close()) })
	s, err := strategy.New(sys, strategy.Options{Replicas: 2, Compiler: compiler})
	require.NoError(t, err)
	return s, compiler
}

// run runs f until its compilation has started, and then cancels the context.
func (c *slowCompiler) run(f *strategy.Function) error {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() {
		for c.begun.Load() == 0 {
			time.Sleep(time.Millisecond)
		}
		cancel()
	}()
	_, err := f.Run(ctx, float32(1))
	return err
}

// Deadlines that are shorter than a compilation cause repeated calls, but only one compilation.
func TestACompilationOutlivesItsDeadline(t *testing.T) {
	s, compiler := slowStrategy(t)
	f := s.Function(double, strategy.FunctionOptions{})
	err := compiler.run(f)
	require.ErrorIs(t, err, context.Canceled)
	require.ErrorContains(t, err, "continues for a later call")
	for range 5 {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
		_, err := f.Run(ctx, float32(1))
		cancel()
		require.ErrorIs(t, err, context.DeadlineExceeded)
	}
	close(compiler.goOn)
	out, err := f.Run(context.Background(), float32(1))
	require.NoError(t, err)
	got, err := out[0].Local(context.Background(), 1)
	require.NoError(t, err)
	assert.Equal(t, float32(2), got.Value())
	assert.Equal(t, int64(1), compiler.begun.Load())
	require.NoError(t, s.Close())
}

// A caller's own context bounds its wait for a compilation of another caller.
func TestAWaitForAnotherCompilationIsBounded(t *testing.T) {
	s, compiler := slowStrategy(t)
	f := s.Function(double, strategy.FunctionOptions{})
	var first error
	var wait sync.WaitGroup
	wait.Go(func() { _, first = f.Run(context.Background(), float32(1)) })
	require.Eventually(t, func() bool { return compiler.begun.Load() == 1 }, 10*time.Second, time.Millisecond)
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Millisecond)
	defer cancel()
	_, err := f.Run(ctx, []float32{1, 2}) // another signature
	require.ErrorIs(t, err, context.DeadlineExceeded)
	close(compiler.goOn)
	wait.Wait()
	require.NoError(t, first)
	require.NoError(t, s.Close())
}

// Functions with the same module share a compilation in progress, but have separate programs.
func TestFunctionsOfOneModuleHaveAProgramEach(t *testing.T) {
	s, compiler := slowStrategy(t)
	var wait sync.WaitGroup
	errs := make([]error, 4)
	for i := range errs {
		wait.Go(func() {
			_, errs[i] = s.Function(double, strategy.FunctionOptions{}).Run(context.Background(), float32(1))
		})
	}
	require.Eventually(t, func() bool { return compiler.begun.Load() > 0 }, 10*time.Second, time.Millisecond)
	close(compiler.goOn)
	wait.Wait()
	for _, err := range errs {
		require.NoError(t, err)
	}
	require.NoError(t, s.Close())
}

// Close abandons a compilation that no caller waits for.
func TestCloseEndsACompilationUnderWay(t *testing.T) {
	s, compiler := slowStrategy(t)
	require.ErrorIs(t, compiler.run(s.Function(double, strategy.FunctionOptions{})), context.Canceled)
	time.AfterFunc(20*time.Millisecond, func() { close(compiler.goOn) })
	require.NoError(t, s.Close())
	_, err := s.Function(double, strategy.FunctionOptions{}).Run(context.Background(), float32(1))
	require.ErrorIs(t, err, strategy.ErrClosed)
}
