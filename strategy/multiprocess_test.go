package strategy_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/core/tensors"
	"github.com/gomlx/gomlx/ml/model"
	"github.com/gomlx/gomlx/ml/train/optimizer"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/input"
	"github.com/tpustrategy/tpustrategy/internal/plugintest"
	"github.com/tpustrategy/tpustrategy/internal/simhost"
	"github.com/tpustrategy/tpustrategy/internal/strategytest"
	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/strategy/train"
)

func trainingData(batches int) (xs, ys []*tensors.Tensor) {
	rng := rand.New(rand.NewPCG(3, 4))
	for range batches {
		x, y := make([]float32, 32*8), make([]float32, 32)
		for i := range x {
			x[i] = float32(rng.NormFloat64())
			y[i/8] += x[i] * float32(i%8) / 8
		}
		xs = append(xs, tensors.FromFlatDataAndDimensions(x, 32, 8))
		ys = append(ys, tensors.FromFlatDataAndDimensions(y, 32, 1))
	}
	return xs, ys
}

// rows is a part of a batch's rows.
func rows(t *tensors.Tensor, part, parts int) *tensors.Tensor {
	n, columns := t.Shape().Dimensions[0]/parts, t.Shape().Dimensions[1]
	flat := tensors.MustCopyFlatData[float32](t)
	return tensors.FromFlatDataAndDimensions(flat[part*n*columns:(part+1)*n*columns], n, columns)
}

func TestProcessesTrainAsOneDoes(t *testing.T) {
	sys := plugintest.System(t, 8)
	xs, ys := trainingData(6)
	for _, mesh := range []struct{ processes, replicas, logical int }{
		{4, 8, 1}, {4, 4, 2}, {2, 4, 2}, {8, 8, 1}, {2, 2, 4},
		{4, 2, 4}, {8, 1, 8}, // replicas that span processes
	} {
		t.Run(fmt.Sprintf("%d processes, %dx%d", mesh.processes, mesh.replicas, mesh.logical), func(t *testing.T) {
			opts := strategy.Options{Replicas: mesh.replicas, LogicalDevices: mesh.logical, Variables: logical.Rules{
				logical.Match(`hidden/.*weights`, logical.SplitInto(1, mesh.logical)),
			}}
			train := func(ctx context.Context, strat *strategy.TPUStrategy, local bool) (losses []float64, err error) {
				store := model.NewStore()
				store.SetParam(model.ParamInitialSeed, int64(7))
				step := train.New(strat, store, optimizer.Adam().LearningRate(0.01).Done(), strategytest.Annotated(mesh.logical), train.Options{LocalBatch: local})
				for i := range xs {
					x, y := xs[i], ys[i]
					if local {
						x, y = rows(x, strat.Process(), strat.NumProcesses()), rows(y, strat.Process(), strat.NumProcesses())
					}
					loss, err := step.Run(ctx, x, y)
					if err != nil {
						return nil, err
					}
					value, err := loss.Float64(ctx)
					if err != nil {
						return nil, err
					}
					losses = append(losses, value)
				}
				return losses, nil
			}
			strat, err := strategy.New(sys, opts)
			require.NoError(t, err)
			want, err := train(context.Background(), strat, false)
			require.NoError(t, err)
			require.NoError(t, strat.Close())
			for _, local := range []bool{false, true} {
				if local && mesh.replicas < mesh.processes {
					continue // processes that share a replica feed the same rows
				}
				got := make([][]float64, mesh.processes)
				strategytest.NoErrors(t, strategytest.OnProcesses(t, sys, simhost.Options{Processes: mesh.processes}, opts, func(ctx context.Context, strat *strategy.TPUStrategy) (err error) {
					got[strat.Process()], err = train(ctx, strat, local)
					return err
				}))
				for process, losses := range got {
					assert.Equal(t, want, losses, "process %d, local batches %t", process, local)
				}
			}
		})
	}
}

func TestAProcessHasItsOwnReplicasAndDevices(t *testing.T) {
	sys := plugintest.System(t, 8)
	type view struct {
		local, devices []int
		of             [][]int
	}
	views := func(replicas, logicalDevices int) []view {
		got := make([]view, 4)
		strategytest.NoErrors(t, strategytest.OnProcesses(t, sys, simhost.Options{Processes: 4}, strategy.Options{Replicas: replicas, LogicalDevices: logicalDevices}, func(_ context.Context, s *strategy.TPUStrategy) error {
			got[s.Process()] = view{s.LocalReplicas(), s.LocalDevices(), s.ProcessReplicas()}
			return nil
		}))
		return got
	}
	for i, v := range views(4, 2) {
		assert.Equal(t, view{[]int{i}, []int{2 * i, 2*i + 1}, [][]int{{0}, {1}, {2}, {3}}}, v)
	}
	for i, v := range views(8, 1) {
		assert.Equal(t, view{[]int{2 * i, 2*i + 1}, []int{2 * i, 2*i + 1}, [][]int{{0, 1}, {2, 3}, {4, 5}, {6, 7}}}, v)
	}
	for i, v := range views(2, 4) {
		assert.Equal(t, view{[]int{i / 2}, []int{2 * i, 2*i + 1}, [][]int{{0}, {0}, {1}, {1}}}, v)
	}
	strat := strategytest.New(t, 2, 1)
	assert.Equal(t, 1, strat.NumProcesses())
	assert.Equal(t, []int{0, 1}, strat.LocalReplicas())
}

func TestOnlyWhatIsHereIsRead(t *testing.T) {
	sys := plugintest.System(t, 8)
	strategytest.NoErrors(t, strategytest.OnProcesses(t, sys, simhost.Options{Processes: 4}, strategy.Options{Replicas: 4, LogicalDevices: 2}, func(ctx context.Context, s *strategy.TPUStrategy) error {
		here := s.Process()
		v, err := s.PerReplica(ctx, []any{[]float32{float32(here), 1}}, logical.SplitInto(2))
		if err != nil {
			return err
		}
		mine, err := s.LocalResults(ctx, v)
		if err != nil {
			return err
		}
		assert.Len(t, mine, 1)
		assert.Equal(t, []float32{float32(here), 1}, mine[0].Value())
		var remote *strategy.RemoteError
		_, err = v.Local(ctx, (here+1)%4)
		if assert.ErrorAs(t, err, &remote) {
			assert.Equal(t, []int{(here + 1) % 4, here}, []int{remote.Process, remote.Here})
		}
		// A sum over the replicas is everywhere, and so is what is mirrored.
		total, err := s.Reduce(ctx, strategy.Sum, v)
		if err != nil {
			return err
		}
		for r := range 4 {
			got, err := total.Local(ctx, r)
			if err != nil {
				return err
			}
			assert.Equal(t, []float32{6, 4}, got.Value())
		}
		_, err = s.PerReplica(ctx, []any{1, 2}, logical.Annotation{})
		assert.ErrorContains(t, err, "2 values for the 1 replicas")
		return nil
	}))
	// A replica that spans processes: its parts are read where they are.
	strategytest.NoErrors(t, strategytest.OnProcesses(t, sys, simhost.Options{Processes: 8}, strategy.Options{Replicas: 4, LogicalDevices: 2}, func(ctx context.Context, s *strategy.TPUStrategy) error {
		whole, err := s.PerReplica(ctx, []any{float32(s.LocalReplicas()[0])}, logical.Annotation{})
		if err != nil {
			return err
		}
		got, err := whole.Local(ctx, s.Process()/2)
		if err != nil {
			return err
		}
		assert.Equal(t, float32(s.Process()/2), got.Value())
		split, err := s.Mirror(ctx, []float32{1, 2}, logical.SplitInto(2))
		if err != nil {
			return err
		}
		var remote *strategy.RemoteError
		_, err = split.Value(ctx)
		assert.ErrorAs(t, err, &remote)
		return nil
	}))
}

func TestVariablesLiveOnlyOnTheirDevices(t *testing.T) {
	sys := plugintest.System(t, 8)
	strategytest.NoErrors(t, strategytest.OnProcesses(t, sys, simhost.Options{Processes: 4}, strategy.Options{Replicas: 8}, func(ctx context.Context, s *strategy.TPUStrategy) error {
		v, err := s.NewVariable(ctx, []float32{1, 2}, strategy.VariableOptions{Aggregation: strategy.AggregateSum})
		if err != nil {
			return err
		}
		count, err := s.NewVariable(ctx, float32(0), strategy.VariableOptions{Name: "count", Synchronization: strategy.OnRead, Aggregation: strategy.AggregateSum})
		if err != nil {
			return err
		}
		step := s.Function(func(rc *strategy.ReplicaContext, in []*graph.Node) []*graph.Node {
			rc.AssignAdd(v, in[0])
			rc.AssignAdd(count, graph.ConvertDType(rc.ReplicaIDInSyncGroup(), dtypes.Float32))
			return []*graph.Node{rc.Read(count)}
		}, strategy.FunctionOptions{Name: "add", LocalBatch: true})
		for range 2 {
			// Two numbers for each of the process's two replicas.
			if _, err := step.Run(ctx, []float32{1, 2, 1, 2}); err != nil {
				return err
			}
		}
		got, err := v.Value(ctx)
		if err != nil {
			return err
		}
		assert.Equal(t, []float32{1 + 16, 2 + 32}, got.Value())
		total, err := count.Value(ctx)
		if err != nil {
			return err
		}
		assert.Equal(t, float32(2*28), total.Value())
		var remote *strategy.RemoteError
		_, err = count.Local(ctx, (2*s.Process()+2)%8)
		assert.ErrorAs(t, err, &remote)
		return nil
	}))
}

func TestProcessesExchangeSmallValues(t *testing.T) {
	sys := plugintest.System(t, 8)
	strategytest.NoErrors(t, strategytest.OnProcesses(t, sys, simhost.Options{Processes: 4}, strategy.Options{Replicas: 4, LogicalDevices: 2}, func(ctx context.Context, s *strategy.TPUStrategy) error {
		for _, size := range []int{0, 1, 900, 1020, 1100, 5000, 100_000} {
			mine := []byte(strings.Repeat(fmt.Sprint(s.Process()), size+s.Process()))
			got, err := s.GatherBytes(ctx, "sizes", mine)
			if err != nil {
				return err
			}
			for i, value := range got {
				assert.Equal(t, strings.Repeat(fmt.Sprint(i), size+i), string(value))
			}
		}
		first, err := s.BroadcastBytes(ctx, "seed", []byte{byte(40 + s.Process())})
		if err != nil {
			return err
		}
		assert.Equal(t, []byte{40}, first)
		for _, who := range []int{-1, 0, 3} {
			any, err := s.AnyProcess(ctx, s.Process() == who)
			if err != nil {
				return err
			}
			assert.Equal(t, who >= 0, any)
		}
		_, err = s.GatherBytes(ctx, "much", make([]byte, 2<<20))
		assert.ErrorContains(t, err, "are the most")
		return s.Barrier(ctx, "end")
	}))
	strat := strategytest.New(t, 2, 1)
	got, err := strat.GatherBytes(context.Background(), "alone", []byte("me"))
	require.NoError(t, err)
	assert.Equal(t, [][]byte{[]byte("me")}, got)
}

func TestABarrierHoldsUntilAllCome(t *testing.T) {
	sys := plugintest.System(t, 4)
	var mu sync.Mutex
	came := 0
	strategytest.NoErrors(t, strategytest.OnProcesses(t, sys, simhost.Options{Processes: 4}, strategy.Options{}, func(ctx context.Context, s *strategy.TPUStrategy) error {
		time.Sleep(time.Duration(s.Process()) * 10 * time.Millisecond)
		mu.Lock()
		came++
		mu.Unlock()
		if err := s.Barrier(ctx, "all"); err != nil {
			return err
		}
		mu.Lock()
		defer mu.Unlock()
		assert.Equal(t, 4, came)
		return nil
	}))
}

func TestHostsShareADatasetUntilItEnds(t *testing.T) {
	sys := plugintest.System(t, 8)
	for name, c := range map[string]struct {
		make  func(o input.Options) (*input.Distributed, error)
		steps int
		sum   int64
	}{
		"one dataset": {steps: 3, sum: 231, make: func(o input.Options) (*input.Distributed, error) {
			return input.Distribute(input.Range(22).Batch(8, false), o)
		}},
		// Host i has i batches for each of its replicas: the hosts vote at each step.
		"a dataset of each host": {steps: 3, sum: 2 * (0*0 + 1*1 + 2*2 + 3*3), make: func(o input.Options) (*input.Distributed, error) {
			return input.FromFunction(func(c input.Context) (input.Dataset, error) {
				host := c.InputPipelineID
				return input.Range(4).Skip(host).Take(1).Repeat(2*host).Batch(1, false), nil
			}, o)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			sums, steps := make([]int64, 4), make([]int, 4)
			strategytest.NoErrors(t, strategytest.OnProcesses(t, sys, simhost.Options{Processes: 4}, strategy.Options{}, func(ctx context.Context, s *strategy.TPUStrategy) error {
				o, err := s.InputOptions()
				if err != nil {
					return err
				}
				d, err := c.make(o)
				if err != nil {
					return err
				}
				for step, err := range d.All(ctx) {
					if err != nil {
						return err
					}
					steps[s.Process()]++
					assert.Len(t, step.Replicas, 2)
					for _, part := range step.Replicas {
						if part.IsZero() {
							continue
						}
						for _, x := range part.Leaf().Flat().([]int64) {
							sums[s.Process()] += x
						}
					}
				}
				return nil
			}))
			assert.Equal(t, []int{c.steps, c.steps, c.steps, c.steps}, steps, "all see the same number of steps")
			assert.Equal(t, c.sum, sums[0]+sums[1]+sums[2]+sums[3])
		})
	}
}

func TestVariablesSpreadOverProcessesAreReadWhole(t *testing.T) {
	sys := plugintest.System(t, 8)
	for _, mesh := range []struct{ processes, replicas, logical int }{{8, 4, 2}, {4, 2, 4}, {4, 4, 2}, {8, 1, 8}} {
		want := make([]float32, 8)
		for i := range want {
			want[i] = float32(i)
		}
		strategytest.NoErrors(t, strategytest.OnProcesses(t, sys, simhost.Options{Processes: mesh.processes}, strategy.Options{Replicas: mesh.replicas, LogicalDevices: mesh.logical}, func(ctx context.Context, s *strategy.TPUStrategy) error {
			split, err := s.NewVariable(ctx, want, strategy.VariableOptions{Annotation: logical.SplitInto(mesh.logical)})
			if err != nil {
				return err
			}
			counts, err := s.NewVariable(ctx, want, strategy.VariableOptions{
				Synchronization: strategy.OnRead, Aggregation: strategy.AggregateMean, Annotation: logical.SplitInto(mesh.logical)})
			if err != nil {
				return err
			}
			own, err := s.NewVariable(ctx, want, strategy.VariableOptions{LocalWrites: true})
			if err != nil {
				return err
			}
			for _, v := range []*strategy.Variable{split, counts, own} {
				got, err := v.Value(ctx)
				if err != nil {
					return fmt.Errorf("%s: %w", v, err)
				}
				assert.Equal(t, want, got.Value(), "%s in process %d", v, s.Process())
			}
			return nil
		}))
	}
}
