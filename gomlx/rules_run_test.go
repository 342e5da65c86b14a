package gomlx_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/core/tensors"
	"github.com/gomlx/gomlx/ml/layers"
	"github.com/gomlx/gomlx/ml/layers/activation"
	"github.com/gomlx/gomlx/ml/model"
	"github.com/gomlx/gomlx/ml/train"
	"github.com/gomlx/gomlx/ml/train/loss"
	"github.com/gomlx/gomlx/ml/train/optimizer"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/gomlx"
	"github.com/tpustrategy/tpustrategy/internal/test/plugintest"
	"github.com/tpustrategy/tpustrategy/logical"
)

// words is a model with the scopes of a transformer's layers: embeddings, a feed-forward pair, logits.
func words(scope *model.Scope, _ any, inputs []*graph.Node) []*graph.Node {
	x := layers.Embedding(scope.In("token_embed"), inputs[0], dtypes.Float32, 64, 32)
	h := activation.Relu(layers.Dense(scope.In("ff1"), x, true, 64))
	x = graph.Add(x, layers.Dense(scope.In("ff2"), h, true, 32))
	return []*graph.Node{layers.Dense(scope.In("output"), x, false, 64)}
}

// trainWords returns the losses of steps of GoMLX's own trainer.
func trainWords(b compute.Backend, rows, steps int) ([]float64, error) {
	tokens, next := make([]int32, rows), make([]int32, rows)
	for i := range tokens {
		tokens[i], next[i] = int32(i*7%64), int32(i*5%64)
	}
	store := model.NewStore()
	store.SetParam(model.ParamInitialSeed, int64(42))
	trainer := train.NewTrainer(b, store, words, loss.SparseCategoricalCrossEntropyLogits,
		optimizer.Adam().LearningRate(0.05).Done(), nil, nil)
	var all []float64
	for range steps {
		metrics, err := trainer.TrainStep(train.Batch{Inputs: []*tensors.Tensor{tensors.FromFlatDataAndDimensions(tokens,
			rows)},
			Labels: []*tensors.Tensor{tensors.FromFlatDataAndDimensions(next, rows, 1)}})
		if err != nil {
			return nil, err
		}
		all = append(all, float64(tensors.ToScalar[float32](metrics[0])))
	}
	return all, nil
}

// fromConfig makes a backend from a string, and collects its explanations.
func fromConfig(t *testing.T, config string, opts gomlx.Options) (*gomlx.Backend, *[]*gomlx.Explanation) {
	t.Helper()
	t.Setenv("TPUSTRATEGY_CPU_PLUGIN", plugintest.Path(t, "cpu"))
	var all []*gomlx.Explanation
	opts.Explain = func(e *gomlx.Explanation) { all = append(all, e) }
	b, err := gomlx.NewFromConfig(t.Context(), config, opts)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, b.Close()) })
	return b, &all
}

const megatronJSON = `{"rules": [
  {"variable": "/ff1/dense/weights$", "split": ["", "model"], "required": true},
  {"variable": "/ff1/dense/biases$", "split": ["model"]},
  {"variable": "/ff2/dense/weights$", "split": ["model", ""]},
  {"variable": "/output/dense/weights$", "split": ["replica", "model"]},
  {"variable": "/token_embed/embeddings$", "split": ["model,replica", ""]}
]}`

func TestRulesGiveTheLossesOfOneDevice(t *testing.T) {
	file := filepath.Join(t.TempDir(), "rules.json")
	require.NoError(t, os.WriteFile(file, []byte(megatronJSON), 0o600))
	one, explained := fromConfig(t, "", gomlx.Options{})
	require.Equal(t, 1, one.Mesh().Size())
	want, err := trainWords(one, 16, 3)
	require.NoError(t, err)
	whole := (*explained)[len(*explained)-1].Report.Memory.Arguments
	for _, c := range []struct {
		config string
		part   float64 // of the memory of one device
		specs  map[string]string
		// gathers is true if every large variable is sharded over the replicas.
		gathers bool
	}{
		{"devices=8,logical=2,rules=megatron", 1. / 2, map[string]string{
			"/ff1/dense/weights": "-,logical", "/ff2/dense/weights": "logical,-", "/token_embed/embeddings": "logical,-",
			"/AdamOptimizer/ff1/dense/weights_1st_moment": "-,logical"}, false},
		{"devices=8,rules=fsdp", 1. / 8, map[string]string{"/ff1/dense/weights": "-,replica",
			"/AdamOptimizer/ff2/dense/weights_2nd_moment": "replica,-"}, true},
		{"devices=4,rules=zero1", 1./3 + 2./3/4, map[string]string{"/ff1/dense/weights": "-,-",
			"/AdamOptimizer/ff1/dense/weights_1st_moment": "-,replica"}, false},
		{"devices=8,logical=4,rules=megatron+fsdp", 1. / 8, map[string]string{"/ff1/dense/weights": "replica,logical"}, true},
		{"devices=8,axes=model:2,rules=" + file, 0.32, map[string]string{
			"/output/dense/weights": "replica,model", "/token_embed/embeddings": "model+replica,-"}, false},
	} {
		t.Run(c.config, func(t *testing.T) {
			var notes bytes.Buffer
			b, explained := fromConfig(t, c.config, gomlx.Options{Log: &notes})
			got, err := trainWords(b, 16, 3)
			require.NoError(t, err)
			assert.InDeltaSlice(t, want, got, 1e-4)
			step := (*explained)[len(*explained)-1]
			assert.InDelta(t, c.part, float64(step.Report.Memory.Arguments)/float64(whole), 0.05,
				"memory of the variables on a device")
			spec := map[string]string{}
			for _, p := range step.Parameters {
				spec[p.Name] = p.Spec
				if p.Variable && len(p.Shape) > 0 {
					assert.True(t, p.Donated, p.Name)
				}
			}
			for name, want := range c.specs {
				assert.Equal(t, want, spec[name], name)
			}
			assert.Empty(t, step.IdleAxes)
			// Variables in parts over the replicas are gathered, and not the activations; gradients are
			// summed up once.
			var gathered, summed int64
			for _, of := range step.Report.Collectives {
				switch {
				case of.Axis != "replica":
				case of.Kind == "all-gather":
					gathered += of.Bytes
				case of.Kind == "all-reduce":
					summed += of.Bytes
				}
			}
			if c.gathers {
				assert.LessOrEqual(t, gathered, step.Report.Memory.Arguments/3, "a device's parts of the variables")
				assert.LessOrEqual(t, summed, 4*step.Report.Parameters/int64(step.Report.LogicalDevices)+4096)
			}
			assert.Empty(t, notes.String())
		})
	}
}

func TestRulesThatReachNothing(t *testing.T) {
	file := filepath.Join(t.TempDir(), "rules.json")
	write := func(text string) { require.NoError(t, os.WriteFile(file, []byte(text), 0o600)) }
	config := "devices=2,logical=2,rules=" + file

	write(`{"rules": [{"variable": "/fff1/dense/weights$", "split": ["", "logical"]}]}`)
	b, _ := fromConfig(t, config, gomlx.Options{})
	_, err := trainWords(b, 4, 1)
	var of *logical.RuleError
	require.ErrorAs(t, err, &of)
	assert.Equal(t, file, of.File)
	assert.Contains(t, err.Error(),
		`no rule reaches a variable: rule 0 matches no variable; the nearest names are "/ff1/dense/weights"`)

	// Rules that are optional leave the program alone, and so does one of several that reaches nothing:
	// another program may come.
	for text, want := range map[string]string{
		`{"rules": [{"variable": "/fff1/dense/weights$", "split": ["", "logical"], "optional": true}]}`:                                         "reaches a variable of program",
		`{"rules": [{"variable": "/ff1/dense/weights$", "split": ["", "logical"]}, {"variable": "/ff2/dense/weights$", "split": ["logical"]}]}`: `rule 1 of ` + file + ` ("/ff2/dense/weights$" to logical) reaches no variable of program "Trainer#1" or of one before it: it splits variables of rank 1, but matches only variables of other ranks: "/ff2/dense/weights"`,
	} {
		write(text)
		var notes bytes.Buffer
		b, _ := fromConfig(t, config, gomlx.Options{Log: &notes})
		_, err := trainWords(b, 4, 1)
		require.NoError(t, err)
		assert.Contains(t, notes.String(), want)
		assert.Equal(t, 1, bytes.Count(notes.Bytes(), []byte("\n")), notes.String())
	}

	// A built-in set that reaches nothing is refused too, but not because of a program that has no matrix
	// of floats, such as one that draws random numbers or scales its data.
	b, _ = fromConfig(t, "devices=2,logical=2,rules=megatron", gomlx.Options{})
	own := func(store *model.Store, name string, dims ...int) error {
		exec, err := model.NewExec(b, store, func(scope *model.Scope, x *graph.Node) *graph.Node {
			w := scope.VariableWithShape(name, shapes.Make(dtypes.Float32, dims...)).NodeValue(x.Graph())
			return graph.Add(graph.Dot(x, w).Product(), graph.ReduceAllSum(scope.RandomNormal(x.Graph(), x.Shape())))
		})
		if err != nil {
			return err
		}
		_, err = exec.Exec([]float32{1, 2, 3, 4})
		return err
	}
	require.NoError(t, own(model.NewStore(), "scale", 4))
	err = own(model.NewStore(), "kernel", 4, 4)
	require.ErrorAs(t, err, &of)
	assert.Equal(t, "megatron", of.File)
	assert.Contains(t, err.Error(), `no rule of the set reaches a variable; the variables are `)
	assert.Contains(t, err.Error(), `/kernel`)
	b, _ = fromConfig(t, "devices=2,logical=2,rules=megatron", gomlx.Options{})
	_, err = trainWords(b, 4, 1)
	require.NoError(t, err)
	require.NoError(t, own(model.NewStore(), "kernel", 4, 4), "a program after the model")

	write(`{"rules": [{"variable": "/ff1/", "split": ["", "logical"], "required": true}]}`)
	b, _ = fromConfig(t, config, gomlx.Options{})
	_, err = trainWords(b, 4, 1)
	require.ErrorAs(t, err, &of)
	assert.Equal(t, "/ff1/dense/biases", of.Variable)
	assert.ErrorContains(t, err, "it splits 2 dimensions, but the variable has 1")

	write(`{"rules": [{"variable": "/ff1/dense/weights$", "split": ["", "modle"]}]}`)
	_, err = gomlx.NewFromConfig(t.Context(), config, gomlx.Options{})
	require.ErrorIs(t, err, gomlx.ErrConfig)
	assert.ErrorContains(t, err, ": option rules: ")
	require.ErrorAs(t, err, &of)
	assert.ErrorContains(t, err,
		`dimension 1 is split over axis "modle", which the replica does not have; use one of replica=1,logical=2`)
}

// A pair of dense layers of which megatron knows one by its scope.
func TestMatricesThatABuiltInSetDoesNotKnowAreNamed(t *testing.T) {
	var notes bytes.Buffer
	b, _ := fromConfig(t, "devices=2,logical=2,rules=megatron", gomlx.Options{Log: &notes})
	exec, err := model.NewExec(b, model.NewStore(), func(scope *model.Scope, x *graph.Node) *graph.Node {
		return layers.Dense(scope.In("second"), layers.Dense(scope.In("ff1"), x, true, 64), true, 32)
	})
	require.NoError(t, err)
	for range 2 {
		_, err = exec.Exec([][]float32{make([]float32, 32), make([]float32, 32)})
		require.NoError(t, err)
	}
	assert.Contains(t, notes.String(), "no rule of megatron is for their names: /second/dense/weights;")
	assert.Equal(t, 1, strings.Count(notes.String(), "is for their names"), "once")
}

// A dimension that is not divisible is not sharded, is reported, and the results are correct.
func TestWhatDoesNotDivideIsWholeAndReported(t *testing.T) {
	want, err := trainWords(first(fromConfig(t, "devices=1", gomlx.Options{})), 15, 2)
	require.NoError(t, err)
	var notes bytes.Buffer
	b, explained := fromConfig(t, "devices=6,logical=3,rules=megatron", gomlx.Options{Log: &notes})
	got, err := trainWords(b, 15, 2)
	require.NoError(t, err)
	assert.InDeltaSlice(t, want, got, 1e-4)
	step := (*explained)[len(*explained)-1]
	whole := map[string]string{}
	for _, p := range step.Parameters {
		whole[p.Name] = p.UnshardedReason
	}
	assert.Equal(t, "dimension 0 of size 15 is not divisible by replica=2", whole["arg0"])
	assert.Equal(t, "rule 0: dimension 1 of size 64 is not divisible by logical=3", whole["/ff1/dense/weights"])
	assert.Contains(t, step.IdleAxes, "replica")
	assert.Contains(t, notes.String(), `program "Trainer#1": every replica computes the whole batch: arg0 (dimension 0 `+
		`of size 15 is not divisible by replica=2), arg1 (`)
	assert.Contains(t, notes.String(), `not split as the rules say: /token_embed/embeddings (rule 11: dimension 0 of `+
		`size 64 is not divisible by logical=3; rule 12: no dimension of [64 32]`)
	assert.Equal(t, 2, bytes.Count(notes.Bytes(), []byte("\n")), notes.String())
	var text bytes.Buffer
	require.NoError(t, step.WriteText(&text))
	assert.Contains(t, text.String(), "use batches whose dimension 0 is divisible by the number of replicas")
}

func first[T, S any](t T, _ S) T { return t }
