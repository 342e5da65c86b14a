package checkpoint_test

import (
	"bytes"
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/core/tensors"
	"github.com/gomlx/gomlx/ml/layers"
	"github.com/gomlx/gomlx/ml/layers/attention"
	"github.com/gomlx/gomlx/ml/layers/norm"
	"github.com/gomlx/gomlx/ml/model"
	"github.com/gomlx/gomlx/ml/train/loss"
	"github.com/gomlx/gomlx/ml/train/optimizer"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/internal/test/plugintest"
	"github.com/tpustrategy/tpustrategy/internal/test/strategytest"
	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/strategy/checkpoint"
	"github.com/tpustrategy/tpustrategy/strategy/stepfile"
	"github.com/tpustrategy/tpustrategy/strategy/train"
	"github.com/tpustrategy/tpustrategy/tpu/system"
)

// The language model has GPT's vocabulary, whose size no mesh divides.
const (
	vocabulary = 50257
	tokens     = 2
	width      = 8
)

// language is a training run of the language model on a mesh.
type language struct {
	s     *strategy.TPUStrategy
	store *model.Store
	step  *train.Step
	scale *strategy.Variable
}

func newLanguage(t *testing.T, sys *system.System, replicas, logicalDevices int) *language {
	t.Helper()
	ctx := context.Background()
	var rules logical.Rules
	if logicalDevices > 1 {
		rules = logical.Rules{
			logical.Match(`tokens/embeddings`, logical.SplitInto(1, logicalDevices)),
			logical.Match(`^scale$`, logical.SplitInto(logicalDevices)),
		}
	}
	s := strategytest.On(t, sys, strategy.Options{Replicas: replicas, LogicalDevices: logicalDevices, Variables: rules})
	ones := make([]float32, width)
	for i := range ones {
		ones[i] = 1
	}
	scale, err := s.NewVariable(ctx, ones, strategy.VariableOptions{Name: "scale"})
	require.NoError(t, err)
	store := model.NewStore()
	store.SetParam(model.ParamInitialSeed, int64(42))
	step := strategytest.OK(train.New(s, store, optimizer.Adam().LearningRate(1e-2).Done(),
		func(rc *strategy.ReplicaContext, in []*graph.Node) *graph.Node {
			x := layers.Embedding(rc.Scope("tokens"), in[0], dtypes.Float32, vocabulary, width)
			x = graph.Mul(x, graph.ExpandLeftToRank(rc.Read(scale), 3))
			h := norm.LayerNorm(rc.Scope("norm"), x, -1).Done()
			x = graph.Add(x, attention.SelfAttention(rc.Scope("attention"), h, 2, width/2).WithCausalMask(true).Done())
			logits := layers.Dense(rc.Scope("vocabulary"), x, false, vocabulary)
			each := loss.SparseCategoricalCrossEntropyLogits([]*graph.Node{graph.InsertAxes(in[1], -1)}, []*graph.Node{logits})
			return graph.ReduceAllMean(graph.Mul(each, graph.InsertAxes(in[2], -1)))
		}, train.Options{NonFinite: train.Skip}))
	return &language{s, store, step, scale}
}

// rowsOf returns the number of rows of batch i. The last batches of an epoch are uneven.
func rowsOf(i int) int {
	switch {
	case i%10 == 9:
		return 3
	case i%5 == 4:
		return 7
	}
	return 8
}

// languageBatch returns batch i: tokens, the next tokens and the rows' weights. Batches 2 and 4
// have values that are not finite.
func languageBatch(i int) []any {
	random := rand.New(rand.NewPCG(uint64(i%3), 7))
	n := rowsOf(i)
	x, y, w := make([][]int32, n), make([][]int32, n), make([]float32, n)
	for r := range n {
		x[r], y[r], w[r] = make([]int32, tokens), make([]int32, tokens), 1
		for c := range tokens {
			x[r][c], y[r][c] = int32(random.IntN(vocabulary)), int32(random.IntN(vocabulary))
		}
	}
	if i == 2 || i == 4 {
		w[n-1] = float32(math.NaN())
	}
	return []any{tensors.FromValue(x), tensors.FromValue(y), tensors.FromValue(w)}
}

func (l *language) run(t *testing.T, step *train.Step, i int) float64 {
	t.Helper()
	loss, err := step.Run(context.Background(), languageBatch(i)...)
	require.NoError(t, err, "step %d", i)
	return strategytest.Float64(t, loss)
}

// loop runs batches 10 to 12 as one program.
func (l *language) loop(t *testing.T) float64 {
	t.Helper()
	var batches [][]any
	for i := 10; i < 13; i++ {
		batches = append(batches, languageBatch(i))
	}
	loss, err := l.step.RunSteps(context.Background(), batches...)
	require.NoError(t, err)
	return strategytest.Float64(t, loss)
}

// The run has uneven and non-finite batches, a loop, a step file and a restored checkpoint.
func TestALanguageModelTrainsAsOnOneDevice(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes a minute")
	}
	ctx := context.Background()
	var want []float64
	for _, mesh := range [][2]int{{1, 1}, {4, 2}, {8, 1}} {
		t.Run(fmt.Sprintf("%dx%d", mesh[0], mesh[1]), func(t *testing.T) {
			sys, d := plugintest.System(t, mesh[0]*mesh[1]), openRun(t)
			l := newLanguage(t, sys, mesh[0], mesh[1])
			compiled, err := l.step.Compiled(ctx, shapes.Make(dtypes.Int32, 8, tokens), shapes.Make(dtypes.Int32, 8, tokens),
				shapes.Make(dtypes.Float32, 8))
			require.NoError(t, err)
			var file bytes.Buffer
			require.NoError(t, stepfile.Save(t.Context(), &file, compiled))

			var got []float64
			for i := 0; i < 15; i++ {
				if i == 6 {
					require.NoError(t, d.Save(ctx, 6, checkpoint.StrategyGroup(l.s, l.store), checkpoint.SaveOptions{}))
				}
				if i == 10 {
					got = append(got, l.loop(t))
					i = 12
					continue
				}
				got = append(got, l.run(t, l.step, i))
			}
			assert.True(t, math.IsNaN(got[2]) && math.IsNaN(got[4]))
			n, err := l.step.NonFinite(ctx)
			require.NoError(t, err)
			assert.Equal(t, train.NonFiniteSteps{Steps: 15, Skipped: 2, Last: 5, What: "the loss"}, n)
			programs := compiled.Module.Text

			if want == nil {
				want = got
			}
			for i := range want {
				if i != 2 && i != 4 {
					assert.InEpsilon(t, want[i], got[i], 2e-4, "loss %d", i)
				}
			}
			assert.Less(t, got[len(got)-1], got[0])

			// Another process continues, with the step from the file if possible.
			l = newLanguage(t, sys, mesh[0], mesh[1])
			restoration(t, d, checkpoint.StrategyGroup(l.s, l.store), checkpoint.RestoreOptions{})
			saved, err := stepfile.LoadTrain(ctx, l.s, bytes.NewReader(file.Bytes()), l.store)
			require.NoError(t, err)
			for i, k := 6, 6; i < 15; i, k = i+1, k+1 {
				now := 0.0
				switch {
				case i == 10:
					now, i = l.loop(t), 12
				case rowsOf(i) == 8:
					now = l.run(t, saved, i)
				default:
					now = l.run(t, l.step, i)
				}
				assert.Equal(t, got[k], now, "loss %d", k)
			}
			again, err := l.step.Lowered(ctx, languageBatch(0)...)
			require.NoError(t, err)
			assert.True(t, bytes.Equal(programs, again.Text), "the restored model's step is another program")
			n, err = l.step.NonFinite(ctx)
			require.NoError(t, err)
			assert.Equal(t, train.NonFiniteSteps{Steps: 15, Skipped: 2, Last: 5, What: "the loss"}, n)
		})
	}
}
