package replay_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"reflect"
	"strconv"
	"testing"

	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/core/tensors"
	"github.com/gomlx/gomlx/ml/layers"
	"github.com/gomlx/gomlx/ml/train/optimizer"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/fit/interrupt"
	"github.com/tpustrategy/tpustrategy/fit/replay"
	"github.com/tpustrategy/tpustrategy/internal/test/plugintest"
	"github.com/tpustrategy/tpustrategy/internal/test/strategytest"
	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/strategy/train"
	"github.com/tpustrategy/tpustrategy/tpu/simhost"
)

// trainer is a step over a mesh of replicas with two logical devices. It contains everything that
// might differ in a repetition: the state of an optimizer, random numbers, and sums over replicas
// and over logical devices.
type trainer struct {
	s    *strategy.TPUStrategy
	step *train.Step
	n    int64
}

const rows, features = 12, 4

func newTrainer(s *strategy.TPUStrategy) *trainer {
	return &trainer{s: s, step: strategytest.OK(train.New(s, strategytest.SeededStore(),
		optimizer.Adam().LearningRate(0.01).Done(),
		func(rc *strategy.ReplicaContext, in []*graph.Node) *graph.Node {
			h := graph.Tanh(logical.Split(layers.Dense(rc.Scope("hidden"), in[0], false, 16), 1, 2))
			h = layers.DropoutStatic(rc.Scope("dropout"), h, 0.25)
			y := logical.Replicate(layers.Dense(rc.Scope("output"), h, false, 1))
			// in[2] is 1: a wrong bit in it is a wrong bit in the gradient of a row.
			return graph.ReduceAllMean(graph.Mul(in[2], graph.Square(graph.Sub(y, in[1]))))
		}, train.Options{}))}
}

// batch is the batch of a step: the features, the targets and the scale of their gradients.
func (r *trainer) batch() [3][]float32 {
	chance := rand.New(rand.NewPCG(uint64(r.n), 5))
	b := [3][]float32{make([]float32, rows*features), make([]float32, rows), make([]float32, rows)}
	for i := range b[0] {
		b[0][i] = chance.Float32() - 0.5
	}
	for i := range b[1] {
		b[1][i], b[2][i] = chance.Float32(), 1
	}
	return b
}

func tensorsOf(b [3][]float32) []any {
	return []any{tensors.FromFlatDataAndDimensions(b[0], rows, features), tensors.FromFlatDataAndDimensions(b[1], rows, 1),
		tensors.FromFlatDataAndDimensions(b[2], rows, 1)}
}

func (r *trainer) run(ctx context.Context, b [3][]float32) error {
	loss, err := r.step.Run(ctx, tensorsOf(b)...)
	if err == nil {
		err = loss.Ready(ctx)
	}
	return err
}

func (r *trainer) variables() []*strategy.Variable {
	return r.s.Variables(r.step.Store()).All()
}

// replay replays the next step. It calls harm before and after the first run of the step.
func (r *trainer) replay(ctx context.Context, batch func(b *[3][]float32), after func() error) error {
	r.n++
	times := 0
	return replay.Step(ctx, r.s, r.n, r.variables(), func(ctx context.Context) error {
		times++
		b := r.batch()
		if times == 1 && batch != nil {
			batch(&b)
		}
		err := r.run(ctx, b)
		if err == nil && times == 1 && after != nil {
			err = after()
		}
		return err
	})
}

// flip flips a bit of a number in the batch.
func flip(x *float32, bit int) {
	*x = math.Float32frombits(math.Float32bits(*x) ^ 1<<bit)
}

// TestFlippedBitsAreFound flips a bit in batches, in gradients, and in a variable on a device,
// before and after a step. Every flip that changes the state is found, and if only one replica has
// the change, its device is named. Other flips are not reported.
func TestFlippedBitsAreFound(t *testing.T) {
	ctx := t.Context()
	s := strategytest.New(t, 3, 2)
	r := newTrainer(s)
	require.NoError(t, r.run(ctx, r.batch()))
	m := replay.On(s)
	chance := rand.New(rand.NewPCG(1, 2))
	variables := r.variables()
	images := func() [][][]byte {
		all, err := m.Images(ctx, variables)
		require.NoError(t, err)
		return all
	}
	// touch flips a bit of a variable on a device.
	var at int
	touch := func() error {
		all := images()
		for {
			v := chance.IntN(len(all))
			at = chance.IntN(6)
			if image := all[v][at]; len(image) > 0 {
				image[chance.IntN(len(image))] ^= 1 << chance.IntN(8)
				return m.Reinstate(ctx, variables, all)
			}
		}
	}
	found := map[string]int{}
	for i := range 200 {
		saved, n := images(), r.n
		require.NoError(t, r.replay(ctx, nil, nil), "flip %d: a clean step", i)
		right := images()
		require.NoError(t, m.Reinstate(ctx, variables, saved))
		r.n = n

		kind := []string{"batch", "gradient", "variable before", "variable after"}[i%4]
		var err error
		bit := chance.IntN(32)
		var wrong [][][]byte
		see := func() error { wrong = images(); return nil }
		switch kind {
		case "batch":
			err = r.replay(ctx, func(b *[3][]float32) { flip(&b[0][chance.IntN(rows*features)], bit) }, see)
		case "gradient":
			err = r.replay(ctx, func(b *[3][]float32) { flip(&b[2][chance.IntN(rows)], bit) }, see)
		case "variable before":
			require.NoError(t, touch())
			err = r.replay(ctx, nil, nil)
		default:
			err = r.replay(ctx, nil, func() error { return errors.Join(touch(), see()) })
		}
		differs := kind == "variable before" || !reflect.DeepEqual(right, wrong)
		var e *replay.Error
		if assert.Equal(t, differs, errors.As(err, &e), "flip %d, %s, bit %d: %v", i, kind, bit, err) && differs {
			found[kind]++
			assert.Equal(t, n+1, e.Step)
			assert.Equal(t, 69, interrupt.ExitCodeFor(err))
			assert.NotEmpty(t, e.Variables)
			if kind == "variable before" || kind == "variable after" {
				require.Len(t, e.Devices, 1, "%v", err)
				assert.Contains(t, e.Devices[0], fmt.Sprintf("replica %d, logical device %d ", at/2, at%2))
			}
		}
		require.NoError(t, m.Reinstate(ctx, variables, right))
	}
	for _, kind := range []string{"batch", "gradient", "variable before", "variable after"} {
		assert.Greater(t, found[kind], 10, "%s", kind)
	}
	t.Log(found)
}

// TestCleanStepsGiveNoAlarm replays steps with sharded state on several meshes.
// TPUSTRATEGY_REPLAY_STEPS is the total number of steps.
func TestCleanStepsGiveNoAlarm(t *testing.T) {
	steps := 120
	if text := os.Getenv("TPUSTRATEGY_REPLAY_STEPS"); text != "" {
		n, err := strconv.Atoi(text)
		require.NoError(t, err)
		steps = n
	}
	for _, o := range []strategy.Options{{Replicas: 2, LogicalDevices: 2}, {Replicas: 2, LogicalDevices: 2,
		Variables: logical.Rules{logical.MatchState("", logical.ShardParameters)}}} {
		s, err := strategy.New(plugintest.System(t, 4), o)
		require.NoError(t, err)
		r := newTrainer(s)
		require.NoError(t, r.run(t.Context(), r.batch()))
		for range steps / 2 {
			require.NoError(t, r.replay(t.Context(), nil, nil))
		}
		require.NoError(t, s.Close())
	}
}

// TestAllProcessesAreTold flips a bit on a device of process 1: both processes name the device.
func TestAllProcessesAreTold(t *testing.T) {
	errs := strategytest.OnProcesses(t, plugintest.System(t, 8), simhost.Options{Processes: 2},
		strategy.Options{Replicas: 4, LogicalDevices: 2}, func(ctx context.Context, s *strategy.TPUStrategy) error {
			r := newTrainer(s)
			if err := errors.Join(r.run(ctx, r.batch()), r.replay(ctx, nil, nil)); err != nil {
				return err
			}
			err := r.replay(ctx, nil, func() error {
				if s.Process() == 0 {
					return nil
				}
				m := replay.On(s)
				all, err := m.Images(ctx, r.variables())
				if err != nil {
					return err
				}
				all[0][7][0] ^= 1
				return m.Reinstate(ctx, r.variables(), all)
			})
			if e := (*replay.Error)(nil); !errors.As(err, &e) || len(e.Devices) != 1 {
				return fmt.Errorf("process %d is told %w", s.Process(), err)
			}
			return nil
		})
	strategytest.NoErrors(t, errs)
}
