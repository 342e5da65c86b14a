package strategytest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/gomlx/compute/dtypes/bfloat16"
	"github.com/gomlx/gomlx/core/tensors"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/internal/test/plugintest"
	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/strategy/eager"
	"github.com/tpustrategy/tpustrategy/tpu/simhost"
	"github.com/tpustrategy/tpustrategy/tpu/system"
)

// New returns a strategy with the given replicas and logical devices on new CPU devices. opts has
// at most one element, whose Replicas and LogicalDevices are ignored.
func New(t testing.TB, replicas, logicalDevices int, opts ...strategy.Options) *strategy.TPUStrategy {
	t.Helper()
	o := strategy.Options{}
	if len(opts) > 0 {
		o = opts[0]
	}
	o.Replicas, o.LogicalDevices = replicas, logicalDevices
	return On(t, plugintest.System(t, replicas*logicalDevices), o)
}

// On returns a strategy on the devices of sys. If the options have no compiler, the strategy uses
// the program cache of the package under test; see [plugintest.Programs].
func On(t testing.TB, sys *system.System, opts strategy.Options) *strategy.TPUStrategy {
	t.Helper()
	if opts.Compiler == nil {
		opts.Compiler = plugintest.Programs(t)
	}
	s, err := strategy.New(sys, opts)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}

// Ahead returns a strategy that compiles for a TPU slice. Call Ahead only in a process in which
// [plugintest.TPUChild] returned true.
func Ahead(t testing.TB, slice string, opts strategy.Options) *strategy.TPUStrategy {
	t.Helper()
	s, err := strategy.NewAheadOfTime(plugintest.Slice(t, slice), opts)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}

// Meshes are the numbers of replicas and logical devices on which tests of the API contract run.
var Meshes = [][2]int{{1, 1}, {2, 1}, {4, 1}, {2, 2}}

// OnMeshes runs a subtest on each mesh. A mesh is a number of replicas and a number of logical
// devices.
func OnMeshes(t *testing.T, meshes [][2]int, run func(t *testing.T, s *strategy.TPUStrategy)) {
	t.Helper()
	for _, m := range meshes {
		t.Run(fmt.Sprintf("%dx%d", m[0], m[1]), func(t *testing.T) { run(t, New(t, m[0], m[1])) })
	}
}

// OnProcesses runs program concurrently on all simulated processes that share the devices of sys.
// Each process has a strategy. OnProcesses returns the errors by process. It uses the same program
// cache as [On].
func OnProcesses(t testing.TB, sys *system.System, processes simhost.Options, opts strategy.Options,
	program func(ctx context.Context, s *strategy.TPUStrategy) error) []error {
	t.Helper()
	if processes.Compiler == nil {
		processes.Compiler = plugintest.Programs(t)
	}
	cluster, err := simhost.New(sys, processes)
	require.NoError(t, err)
	errs := make([]error, processes.Processes)
	var wg sync.WaitGroup
	for i := range errs {
		wg.Go(func() {
			own, err := cluster.Open(context.Background(), i)
			if errs[i] = err; err != nil {
				return
			}
			defer func() { assert.NoError(t, own.Close(), "process %d", i) }()
			s, err := strategy.New(own, opts)
			if errs[i] = err; err != nil {
				return
			}
			defer func() { assert.NoError(t, s.Close(), "process %d", i) }()
			errs[i] = program(context.Background(), s)
		})
	}
	wg.Wait()
	return errs
}

// NoErrors fails the test if one of the errors of [OnProcesses] is not nil.
func NoErrors(t testing.TB, errs []error) {
	t.Helper()
	for i, err := range errs {
		require.NoError(t, err, "process %d", i)
	}
}

// Values returns the value of each replica, converted by [tensors.Tensor.Value].
func Values(t testing.TB, v interface {
	Local(ctx context.Context, replica int) (*tensors.Tensor, error)
}, replicas int) (all []any) {
	t.Helper()
	for r := range replicas {
		x, err := v.Local(context.Background(), r)
		require.NoError(t, err, "replica %d", r)
		all = append(all, x.Value())
	}
	return all
}

// Float64 returns a scalar, such as a loss, as float64.
func Float64(t testing.TB, m *strategy.Mirrored) float64 {
	t.Helper()
	value, err := m.Float64(context.Background())
	require.NoError(t, err)
	return value
}

// Numbers is like [Elements], but fails the test on an error.
func Numbers(t testing.TB, x *tensors.Tensor) []float64 {
	t.Helper()
	all, err := Elements(x)
	require.NoError(t, err)
	return all
}

// Elements returns the elements of a tensor as float64. The dtype must be float64, float32,
// bfloat16, int32, int64 or bool.
func Elements(x *tensors.Tensor) (all []float64, err error) {
	read := x.ConstFlatData(func(flat any) {
		switch flat := flat.(type) {
		case []float64:
			all = widened(flat, func(x float64) float64 { return x })
		case []float32:
			all = widened(flat, func(x float32) float64 { return float64(x) })
		case []bfloat16.BFloat16:
			all = widened(flat, func(x bfloat16.BFloat16) float64 { return float64(x.Float32()) })
		case []int32:
			all = widened(flat, func(x int32) float64 { return float64(x) })
		case []int64:
			all = widened(flat, func(x int64) float64 { return float64(x) })
		case []bool:
			all = widened(flat, func(x bool) float64 {
				if x {
					return 1
				}
				return 0
			})
		default:
			err = fmt.Errorf("strategytest: no numbers in %s", x.Shape())
		}
	})
	return all, errors.Join(err, read)
}

func widened[T any](flat []T, number func(x T) float64) []float64 {
	all := make([]float64, len(flat))
	for i, x := range flat {
		all[i] = number(x)
	}
	return all
}

// Example opens a strategy on CPU devices for an example, which has no testing.TB. done closes the
// strategy and its system.
func Example(replicas, logicalDevices int) (s *strategy.TPUStrategy, done func()) {
	sys := OK(system.Open(context.Background(), system.Options{CPUDevices: replicas * logicalDevices}))
	s = OK(strategy.New(sys, strategy.Options{Replicas: replicas, LogicalDevices: logicalDevices}))
	return s, func() { _, _ = OK(0, s.Close()), OK(0, sys.Close()) }
}

// Locals copies each replica's value of nest to the host.
func Locals(s *strategy.TPUStrategy, nest any) (all []any) {
	for _, x := range OK(eager.Of(s).LocalResultsOf(nest)) {
		if c, isComponent := x.(eager.Component); isComponent {
			x = OK(c.Local(context.Background())).Value()
		}
		all = append(all, x)
	}
	return all
}

// OK returns x, or panics with err if it is not nil. It is for examples.
func OK[T any](x T, err error) T {
	if err != nil {
		panic(err)
	}
	return x
}

// Err returns only the error of a call that also returns a value.
func Err[T any](_ T, err error) error { return err }

// Shared copies a mirrored value to the host. It panics on an error. It is for examples.
func Shared(m *strategy.Mirrored) any { return OK(m.Value(context.Background())).Value() }
