package strategy_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/core/tensors"
	"github.com/gomlx/gomlx/ml/layers"
	"github.com/gomlx/gomlx/ml/model"
	"github.com/gomlx/gomlx/ml/train/optimizer"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/internal/test/plugintest"
	"github.com/tpustrategy/tpustrategy/internal/test/strategytest"
	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/pjrt"
	"github.com/tpustrategy/tpustrategy/pjrt/leaktest"
	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/strategy/train"
	"github.com/tpustrategy/tpustrategy/tpu"
	"github.com/tpustrategy/tpustrategy/tpu/simhost"
	"github.com/tpustrategy/tpustrategy/tpu/system"
)

var concurrentFor = flag.Duration("concurrent.for", 3*time.Second, "how long many goroutines use one strategy")

// residentBytes returns the memory of the process, or 0 without /proc.
func residentBytes() int {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(status)) {
		if rest, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			kb, _ := strconv.Atoi(strings.Fields(rest)[0])
			return kb << 10
		}
	}
	return 0
}

// Functions, training steps, loops, reads, writes and Close run concurrently on one strategy. No
// update is lost, nothing is leaked, and reads of a mirrored variable return the value of one step.
func TestManyGoroutinesShareAStrategy(t *testing.T) {
	leaktest.Check(t)
	ctx := context.Background()
	sys, err := system.Open(ctx, system.Options{CPUDevices: 4})
	require.NoError(t, err)
	defer func() { require.NoError(t, sys.Close()) }()
	s, err := strategy.New(sys, strategy.Options{Compiler: plugintest.Programs(t), Replicas: 2, LogicalDevices: 2,
		Variables: logical.Rules{logical.Match(`hidden/.*weights`, logical.SplitInto(1, 2))}})
	require.NoError(t, err)

	store := model.NewStore()
	store.SetParam(model.ParamInitialSeed, int64(1))
	x, y := strategytest.Sums(8, 8)
	train := strategytest.OK(train.New(s, store, optimizer.Adam().LearningRate(0.001).Done(), strategytest.Annotated(2),
		train.Options{}))
	counts := model.NewStore()
	counter := s.Function(func(rc *strategy.ReplicaContext, _ []*graph.Node) []*graph.Node {
		n := rc.Scope().VariableWithValue("n", []int32{0, 0, 0, 0})
		next := graph.AddScalar(logical.Split(n.NodeValue(rc.Graph()), 2), 1)
		n.SetNodeValue(next)
		return []*graph.Node{next}
	}, strategy.FunctionOptions{Name: "count", Store: counts})
	total, err := s.NewVariable(ctx, float32(0), strategy.VariableOptions{Name: "total",
		Aggregation: strategy.AggregateSum})
	require.NoError(t, err)
	adder := s.Function(func(rc *strategy.ReplicaContext, in []*graph.Node) []*graph.Node {
		return []*graph.Node{rc.AssignAdd(total, in[0])}
	}, strategy.FunctionOptions{Name: "add"})
	_, err = counter.Run(ctx)
	require.NoError(t, err)
	_, err = train.Run(ctx, x, y)
	require.NoError(t, err)

	var counted, added, other atomic.Int64
	var compiled atomic.Int32 // number of goroutines that have finished compiling
	var over atomic.Bool
	counted.Store(1)
	workers := []func(i int) error{
		func(int) error { _, err := train.Run(ctx, x, y); return err },
		func(int) error { _, err := train.RunSteps(ctx, []any{x, y}, []any{x, y}); return err },
		func(int) error {
			out, err := counter.Run(ctx)
			if err != nil {
				return err
			}
			counted.Add(1)
			return errors.Join(out[0].Ready(ctx), out[0].Close(), out[0].Close())
		},
		func(int) error {
			out, err := adder.Run(ctx, float32(1))
			if err != nil {
				return err
			}
			added.Add(2)
			return out[0].Close()
		},
		func(int) error { added.Add(1); return total.AssignAdd(ctx, float32(1)) },
		func(int) error {
			v, ok := s.Variables(counts).Lookup("/n")
			if !ok {
				return fmt.Errorf("the counter is gone: %w", strategy.ErrClosed) // a closed strategy has no variables
			}
			value, err := v.Value(ctx)
			if err != nil {
				return err
			}
			if n := value.Value().([]int32); n[0] != n[1] || n[0] != n[2] || n[0] != n[3] {
				return fmt.Errorf("a torn read: %v", n)
			}
			return nil
		},
		func(int) error {
			all := s.Variables(store).All()
			if len(all) == 0 {
				return fmt.Errorf("the model's variables are gone: %w", strategy.ErrClosed)
			}
			_, err := all[0].Local(ctx, 1)
			return err
		},
		func(i int) error { // a new signature each time, at first
			n := 1 + i%3
			f := s.Function(func(rc *strategy.ReplicaContext, in []*graph.Node) []*graph.Node {
				return []*graph.Node{rc.AllReduce(strategy.Sum, logical.OnDevice(1, in[0], graph.Neg))}
			}, strategy.FunctionOptions{})
			if i == 12 {
				compiled.Add(1)
			}
			if i >= 12 {
				time.Sleep(5 * time.Millisecond)
				return nil
			}
			out, err := f.Run(ctx, make([]float32, n))
			if err != nil {
				return err
			}
			return out[0].Close()
		},
		func(i int) error { // a value that other goroutines close while it is used
			v, err := s.Mirror(ctx, tensors.FromScalarAndDimensions(float32(i), 256), logical.SplitInto(2))
			if err != nil {
				return err
			}
			var all sync.WaitGroup
			all.Go(func() { _ = v.Close() })
			all.Go(func() {
				if got, err := v.Local(ctx, 0); err == nil && got.Value().([]float32)[255] != float32(i) {
					panic("a closed value was read")
				}
			})
			all.Wait()
			other.Add(1)
			return nil
		},
	}
	var all sync.WaitGroup
	failed := make(chan error, len(workers)*2)
	const each = 2
	for w, work := range workers {
		for range each {
			all.Go(func() {
				for i := 0; !over.Load(); i++ {
					if err := work(i); err != nil {
						failed <- fmt.Errorf("worker %d: %w", w, err)
						over.Store(true)
						return
					}
				}
			})
		}
	}
	time.Sleep(*concurrentFor / 2)
	for compiled.Load() < each && !over.Load() { // the machine may be busy
		time.Sleep(5 * time.Millisecond)
	}
	debug.FreeOSMemory()
	settled := residentBytes()
	time.Sleep(*concurrentFor / 2)
	over.Store(true)
	all.Wait()
	close(failed)
	for err := range failed {
		t.Error(err)
	}
	debug.FreeOSMemory()
	grown := residentBytes() - settled
	t.Logf("%d counts, %d added, %d values; resident %d MiB, grown by %d MiB in the second half",
		counted.Load(), added.Load(), other.Load(), settled>>20, grown>>20)
	assert.Less(t, grown, 64<<20)
	v, _ := s.Variables(counts).Lookup("/n")
	n, err := v.Value(ctx)
	require.NoError(t, err)
	assert.Equal(t, int32(counted.Load()), n.Value().([]int32)[0])
	sum, err := total.Value(ctx)
	require.NoError(t, err)
	assert.Equal(t, float32(added.Load()), sum.Value())

	// Close during other calls: they return ErrClosed, or finish before.
	for _, work := range workers {
		all.Go(func() {
			for i := 0; ; i++ {
				if err := work(i); err != nil {
					assert.ErrorIs(t, err, strategy.ErrClosed)
					return
				}
				if i > 10000 {
					return
				}
			}
		})
	}
	time.Sleep(50 * time.Millisecond)
	require.NoError(t, s.Close())
	all.Wait()
	require.NoError(t, s.Close())
	runtime.GC()
}

func TestATrainStepOfAClosedStrategyIsErrClosed(t *testing.T) {
	ctx := context.Background()
	s := strategytest.New(t, 1, 1)
	train := strategytest.OK(train.New(s, model.NewStore(), optimizer.StochasticGradientDescent().Done(),
		func(rc *strategy.ReplicaContext, in []*graph.Node) *graph.Node {
			return graph.ReduceAllMean(layers.Dense(rc.Scope("a"), in[0], true, 2))
		}, train.Options{}))
	_, err := train.Run(ctx, [][]float32{{1}})
	require.NoError(t, err)
	require.NoError(t, s.Close())
	_, err = train.Run(ctx, [][]float32{{1}})
	assert.ErrorIs(t, err, strategy.ErrClosed)
}

func TestEveryProcessTakesPart(t *testing.T) {
	sys := plugintest.System(t, 8)
	first, err := tpu.NewDeviceAssignment(mustTopology(t, 8, 2), [][]tpu.Coordinates{{{0, 0, 0, 0}}, {{0, 0, 0, 1}}})
	require.NoError(t, err)
	errs := strategytest.OnProcesses(t, sys, simhost.Options{Processes: 2}, strategy.Options{Assignment: first},
		func(ctx context.Context, s *strategy.TPUStrategy) error {
			assert.Equal(t, 1, s.NumProcesses(), "the other one has no device of it")
			return s.Barrier(ctx, "alone")
		})
	require.NoError(t, errs[0])
	var option *strategy.OptionError
	require.ErrorAs(t, errs[1], &option)
	assert.ErrorContains(t, errs[1], "no device of this process, which is process 1 of 2")
}

func TestOptionsThatDoNotFitAreNamed(t *testing.T) {
	sys := plugintest.System(t, 8)
	twice, err := tpu.NewDeviceAssignment(sys.Topology(), [][]tpu.Coordinates{{{0, 0, 0, 0}}, {{0, 0, 0, 0}}})
	require.NoError(t, err)
	other, err := tpu.LogicalTopology(tpu.LogicalOptions{Devices: 16})
	require.NoError(t, err)
	elsewhere, err := tpu.BuildDeviceAssignment(other, tpu.AssignmentOptions{Replicas: 16})
	require.NoError(t, err)
	fits, err := tpu.BuildDeviceAssignment(sys.Topology(), tpu.AssignmentOptions{Replicas: 8})
	require.NoError(t, err)
	for name, c := range map[string]struct {
		opts   strategy.Options
		option string
		want   string
	}{
		"more replicas than devices": {strategy.Options{Replicas: 9}, "Replicas", "does not fit"},
		"negative replicas":          {strategy.Options{Replicas: -1}, "Replicas", "both are counts"},
		"a block that does not divide": {strategy.Options{LogicalDevices: 3}, "LogicalDevices",
			"no block of 3 devices divides the mesh"},
		"more logical devices than there are": {strategy.Options{LogicalDevices: 16}, "LogicalDevices", "no block of 16"},
		"a core assigned twice":               {strategy.Options{Assignment: twice}, "Assignment", "names a core twice"},
		"an assignment of another system": {strategy.Options{Assignment: elsewhere}, "Assignment",
			"which the system does not have"},
		"an assignment and other replicas": {strategy.Options{Assignment: fits, Replicas: 4}, "Replicas",
			"give one of them"},
		"a rule without a pattern": {strategy.Options{Variables: logical.Rules{{Annotation: logical.SplitInto(1,
			2)}}}, "Variables", "it has no pattern; create it with logical.Match"},
		"an assignment and other devices": {strategy.Options{Assignment: fits, LogicalDevices: 2}, "LogicalDevices",
			"give one of them"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := strategy.New(sys, c.opts)
			var option *strategy.OptionError
			require.True(t, errors.As(err, &option), "%v", err)
			assert.Equal(t, c.option, option.Option)
			assert.ErrorContains(t, err, c.want)
		})
	}
	strat, err := strategy.New(sys, strategy.Options{LogicalDevices: 4, Variables: logical.Rules{}})
	require.NoError(t, err)
	assert.Equal(t, 2, strat.NumReplicasInSync(), "as many replicas as fit")
	require.NoError(t, strat.Close())
}

func TestAClosedSystemTakesNoStrategy(t *testing.T) {
	sys, err := system.Open(t.Context(), system.Options{CPUDevices: 2, Plugin: plugintest.Path(t, "cpu")})
	require.NoError(t, err)
	held, err := sys.Runtime().BufferFromHost(t.Context(), make([]byte, 4), pjrt.F32, nil, sys.Runtime().Devices()[0])
	require.NoError(t, err)
	require.Error(t, sys.Close(), "a buffer is open on it")
	s, err := strategy.New(sys, strategy.Options{})
	require.NoError(t, err, "so it is open still")
	require.NoError(t, s.Close())
	require.NoError(t, held.Close())
	require.NoError(t, sys.Close())

	_, err = strategy.New(sys, strategy.Options{})
	var own *strategy.Error
	require.ErrorAs(t, err, &own)
	require.ErrorIs(t, err, pjrt.ErrClosed)
	assert.Equal(t, errkind.RuntimeError, errkind.KindOf(err))
	assert.EqualError(t, err, "strategy: new: system: the system is closed; create a new one with Open")
}

// New rejects a system that is not open, and a zero strategy returns errors.
func TestZeroValuesGiveNoStrategy(t *testing.T) {
	_, err := strategy.New(&system.System{}, strategy.Options{})
	require.ErrorIs(t, err, pjrt.ErrClosed)
	_, err = strategy.NewAheadOfTime(&system.Slice{}, strategy.Options{})
	require.ErrorIs(t, err, pjrt.ErrClosed)
	var s strategy.TPUStrategy
	assert.NotPanics(t, func() {
		_, err := s.Function(double, strategy.FunctionOptions{}).Run(t.Context(), float32(1))
		assert.Error(t, err)
		assert.NoError(t, s.Shutdown(t.Context()))
	})
}
