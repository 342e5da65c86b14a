package gomlx_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/core/tensors"
	"github.com/gomlx/gomlx/ml/layers"
	"github.com/gomlx/gomlx/ml/model"
	"github.com/gomlx/gomlx/ml/train"
	"github.com/gomlx/gomlx/ml/train/loss"
	"github.com/gomlx/gomlx/ml/train/optimizer"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/gomlx"
	"github.com/tpustrategy/tpustrategy/internal/test/plugintest"
	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/tpu/simhost"
	"github.com/tpustrategy/tpustrategy/tpu/system"
)

// onHosts runs a program in each of several simulated processes, with separate backends.
func onHosts(t *testing.T, sys *system.System, processes int, opts gomlx.Options, program func(process int,
	b *gomlx.Backend) error) []error {
	t.Helper()
	cluster, err := simhost.New(sys, simhost.Options{Processes: processes, Compiler: plugintest.Programs(t)})
	require.NoError(t, err)
	errs := make([]error, processes)
	var wg sync.WaitGroup
	for i := range processes {
		wg.Go(func() {
			errs[i] = func() error {
				sys, err := cluster.Open(context.Background(), i)
				if err != nil {
					return err
				}
				b, err := gomlx.New(sys, opts)
				if err != nil {
					return err
				}
				err = program(i, b)
				if end := b.Close(); err == nil {
					err = end
				}
				if end := sys.Close(); err == nil {
					err = end
				}
				return err
			}()
		})
	}
	wg.Wait()
	return errs
}

// learned trains and returns the losses of the steps, and a weight that the rules split.
func learned(b *gomlx.Backend, seed int64) ([]float64, [][]float32, error) {
	store := model.NewStore()
	store.SetParam(model.ParamInitialSeed, seed)
	trainer := train.NewTrainer(b, store, func(scope *model.Scope, x *graph.Node) *graph.Node {
		x = graph.Tanh(layers.Dense(scope.In("hidden"), x, true, 16))
		x = layers.DropoutStatic(scope, x, 0.25)
		return layers.Dense(scope.In("output"), x, true, 1)
	}, loss.MeanSquaredError, optimizer.Adam().LearningRate(0.02).Done(), nil, nil)
	var losses []float64
	for step := range 4 {
		xs, ys := make([]float32, 16*8), make([]float32, 16)
		for i := range xs {
			xs[i] = float32((i*7+step)%13)/13 - 0.5
			ys[i/8] += xs[i] * float32(i%8)
		}
		metrics, err := trainer.TrainStep(train.Batch{Inputs: []*tensors.Tensor{tensors.FromFlatDataAndDimensions(xs, 16, 8)},
			Labels: []*tensors.Tensor{tensors.FromFlatDataAndDimensions(ys, 16, 1)}})
		if err != nil {
			return nil, nil, err
		}
		losses = append(losses, float64(tensors.ToScalar[float32](metrics[0])))
	}
	value, err := store.GetVariable("/hidden/dense/weights").Value()
	if err != nil {
		return nil, nil, err
	}
	return losses, value.Value().([][]float32), nil
}

// TestHostsTrainAsOneDoes passes the complete batch in each process, which transfers the parts of
// its own devices. The weights that the last line reads are sharded over all processes.
func TestHostsTrainAsOneDoes(t *testing.T) {
	sys := plugintest.System(t, 8)
	for _, c := range []struct{ processes, logical int }{{2, 2}, {4, 4}} {
		t.Run(fmt.Sprintf("%d processes, %dx%d", c.processes, 8/c.logical, c.logical), func(t *testing.T) {
			opts := gomlx.Options{Compiler: plugintest.Programs(t), LogicalDevices: c.logical,
				Rules: logical.Rules{logical.Match(`hidden/dense/weights`, logical.SplitOverAxes("replica", "logical"))}}
			one, err := gomlx.New(sys, opts)
			require.NoError(t, err)
			want, weights, err := learned(one, 7)
			require.NoError(t, err)
			require.NoError(t, one.Close())
			for i, err := range onHosts(t, sys, c.processes, opts, func(process int, b *gomlx.Backend) error {
				losses, got, err := learned(b, 7)
				if err == nil {
					assert.Equal(t, want, losses, "process %d", process)
					assert.Equal(t, weights, got, "process %d", process)
				}
				return err
			}) {
				require.NoError(t, err, "process %d", i)
			}
		})
	}
}

func TestHostsThatDifferAreNamed(t *testing.T) {
	sys := plugintest.System(t, 4)
	for _, c := range []struct {
		name, want string
		run        func(process int, b *gomlx.Backend) error
	}{
		{"programs", `program "Exec.*: processes \[1\] have another than the rest; run the same program`,
			func(process int, b *gomlx.Backend) error {
				_, err := graph.CallOnce(b, func(x *graph.Node) *graph.Node { return graph.AddScalar(x, process) }, float32(1))
				return err
			}},
		{"first values", `variable "/w": processes \[1\] have another than the rest; give each process the same seed`,
			func(process int, b *gomlx.Backend) error {
				store := model.NewStore()
				store.VariableWithValue("/w", []float32{1, 2, float32(process)})
				store.VariableWithValue("/v", []float32{1, 2, 3})
				_, err := model.CallOnce(b, store, func(scope *model.Scope, g *graph.Graph) *graph.Node {
					return graph.Add(store.GetVariable("/v").NodeValue(g), store.GetVariable("/w").NodeValue(g))
				})
				return err
			}},
		{"named devices", `the devices belong to several processes`, func(process int, b *gomlx.Backend) error {
			exec, err := graph.NewExec(b, func(x *graph.Node) *graph.Node { return graph.Neg(x) })
			if err != nil {
				return err
			}
			_, _, err = exec.CallWithGraphOnDevice(1, float32(1))
			return err
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, err := range onHosts(t, sys, 2, gomlx.Options{}, c.run) {
				require.Error(t, err)
				assert.Regexp(t, c.want, err.Error())
				assert.NotEqual(t, errkind.Unknown, errkind.KindOf(err))
			}
		})
	}
}

// TestFinalizeEndsAWait lets a process wait for another one that never joins, until its backend is
// finalized.
func TestFinalizeEndsAWait(t *testing.T) {
	sys := plugintest.System(t, 2)
	ended := make(chan struct{})
	for _, err := range onHosts(t, sys, 2, gomlx.Options{}, func(process int, b *gomlx.Backend) error {
		if process == 1 {
			<-ended
			return nil
		}
		defer close(ended)
		closed := make(chan struct{})
		time.AfterFunc(200*time.Millisecond, func() {
			defer close(closed)
			b.Finalize()
		})
		_, _, err := learned(b, 1)
		assert.ErrorIs(t, err, gomlx.ErrFinalized)
		<-closed
		return nil
	}) {
		require.NoError(t, err)
	}
}
