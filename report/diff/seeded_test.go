package diff_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/ml/layers"
	"github.com/gomlx/gomlx/ml/model"
	"github.com/gomlx/gomlx/ml/train/optimizer"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/internal/test/strategytest"
	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/lowering/loop"
	"github.com/tpustrategy/tpustrategy/report"
	"github.com/tpustrategy/tpustrategy/report/cost"
	"github.com/tpustrategy/tpustrategy/report/diff"
	"github.com/tpustrategy/tpustrategy/report/memory"
	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/strategy/train"
)

// recipe is a small step: pairs of dense layers in a loop, with the first layer of each pair split
// by columns.
type recipe struct {
	replicas, logical, rounds, batch int
	scope                            string
	seed                             int64
	gather, unrolled                 bool
}

var usual = recipe{replicas: 2, logical: 2, rounds: 8, batch: 64, scope: "layers", seed: 1}

// compiled returns the report of a recipe, compiled by the CPU plugin.
func compiled(t *testing.T, r recipe) *report.Report {
	t.Helper()
	store := model.NewStore()
	store.SetParam(model.ParamInitialSeed, r.seed)
	step, err := train.New(strategytest.New(t, r.replicas, r.logical), store,
		optimizer.StochasticGradientDescent().WithLearningRate(0.01).Done(),
		func(rc *strategy.ReplicaContext, in []*graph.Node) *graph.Node {
			layer := func(scope *model.Scope, x *graph.Node) *graph.Node {
				h := graph.Tanh(logical.Split(layers.Dense(scope.In("up"), x, false, 128), 1, r.logical))
				if r.gather {
					h = graph.Tanh(logical.Replicate(h))
				}
				return graph.Add(x, layers.Dense(scope.In("down"), h, false, 64))
			}
			x := in[0]
			if r.unrolled {
				for i := range r.rounds {
					x = layer(rc.Scope(fmt.Sprint(r.scope, i)), x)
				}
			} else {
				x = loop.Layers(rc.Scope(r.scope), r.rounds, x, layer, loop.Options{})
			}
			return graph.ReduceAllMean(graph.Square(x))
		}, train.Options{Name: "small"})
	require.NoError(t, err)
	c, err := step.Compiled(t.Context(), shapes.Make(dtypes.Float32, r.batch*r.replicas, 64))
	require.NoError(t, err)
	one, err := report.Of(c)
	require.NoError(t, err)
	return one
}

// slice returns the report of a step for a slice of TPUs: of the step that was compiled here, with
// figures like those of the TPU compiler.
func slice(t *testing.T) *report.Report {
	t.Helper()
	data, err := os.ReadFile("testdata/digits.json")
	require.NoError(t, err)
	r, err := report.Parse(data)
	require.NoError(t, err)
	r.Target.Name, r.Target.Kind, r.Memory.Code, r.Memory.Limit, r.Memory.Verdict = "v5e:2x2", "TPU v5 lite", 1<<20,
		16<<30, report.Fits
	r.Cost.RooflineSeconds = 2e-3
	r.Predicted = &cost.Prediction{Seconds: 3e-3, Products: 1e-3, Memory: 1e-3, Interconnect: cost.Overlap{Exposed: 1e-3}}
	for i := range r.Temporaries[:4] {
		r.Temporaries[i].DType, r.Temporaries[i].Bytes = "bf16", r.Temporaries[i].Bytes/2
	}
	return r
}

// worse returns the sentences of the changes for the worse.
func worse(t *testing.T, before, after *report.Report) string {
	t.Helper()
	d, err := diff.Reports(before, after, diff.Tolerance{})
	require.NoError(t, err)
	var all []string
	for _, c := range d.Changes {
		if c.Verdict == diff.Worse {
			all = append(all, c.Text)
		}
	}
	return strings.Join(all, "\n")
}

// These steps are compiled.
func TestRegressionsOfCompiledStepsAreFoundAndNamed(t *testing.T) {
	before := compiled(t, usual)
	for name, of := range map[string]struct {
		change func(r *recipe)
		want   []string
	}{
		"an extra all-gather": {func(r *recipe) { r.gather = true },
			[]string{`all-gather over logical of 2 cores: \d+ of them, was \d`}},
		"an unrolled loop": {func(r *recipe) { r.unrolled = true }, []string{`the step's text: [\d.]+ KiB, was`}},
		"more rounds": {func(r *recipe) { r.rounds = 12 }, []string{`over logical of 2 cores: \d+ of them, was \d+`,
			`operations of a core: .*\(\+[45]\d`}},
		"a larger batch": {func(r *recipe) { r.batch = 128 }, []string{`temporaries: `,
			`argument argument_0 Float32\[128 64\] uses 32.00 KiB per core, was 16.00 KiB, was Float32\[64 64\]`}},
		"a larger group": {func(r *recipe) { r.replicas = 4 },
			[]string{`all-reduce over replica of 4 cores, was of 2: `}},
		"another axis": {func(r *recipe) { r.replicas, r.logical = 4, 1 },
			[]string{`all-reduce over replica of 4 cores, was of 2: `}},
	} {
		t.Run(name, func(t *testing.T) {
			r := usual
			of.change(&r)
			text := worse(t, before, compiled(t, r))
			for _, want := range of.want {
				assert.Regexp(t, regexp.MustCompile(want), text)
			}
		})
	}
}

// These reports are modified as the TPU compiler would report such steps.
func TestRegressionsOfReportsAreFoundAndNamed(t *testing.T) {
	for name, of := range map[string]struct {
		change func(r *report.Report)
		want   []string
	}{
		"a donation lost": {func(r *report.Report) {
			r.Tensors[2].Donated = false
			r.Memory.Aliased -= r.Tensors[2].BytesPerCore
		}, []string{"variable /up0/dense/weights Float32[784 512] is no longer donated: its next value needs 784.00 KiB " +
			"more per core", "outputs in memory of their own: 784.12 KiB, was 124 B"}},
		"a float32 leak in a temporary": {func(r *report.Report) {
			r.Temporaries[0].DType, r.Temporaries[0].Bytes = "f32",
				802816
		},
			[]string{"temporaries of shape [784 256] have 784.00 KiB of f32, was 0 B, and 392.00 KiB of bf16, was 784.00 KiB"}},
		"a float32 leak in a collective": {func(r *report.Report) {
			r.CollectiveDTypes[0].Bytes *= 2
			r.Collectives[0].Bytes *= 2
			r.Collectives[0].Moved *= 2
			r.CollectiveDTypes[0].DType = "f32"
		}, []string{"all-reduce over replica of 2 cores have 1.55 MiB of f32, was 0 B, and 0 B of bf16, was 795.04 KiB"}},
		"a copy more": {func(r *report.Report) {
			r.Temporaries = append([]memory.Temporary{{Operation: "copy", DType: "f32", Shape: []int{784, 256}, Bytes: 802816,
				Count: 1}}, r.Temporaries...)[:10]
		}, []string{"copies of f32[784 256]: 784.00 KiB, was 0 B"}},
		"a higher peak": {func(r *report.Report) { r.Memory.Peak += 1 << 20 },
			[]string{"peak memory: 3.71 MiB, was 2.71 MiB (+36.9 %)"}},
		"another axis for a collective": {func(r *report.Report) {
			r.Collectives[0].Axis, r.CollectiveDTypes[0].Axis = "logical", "logical"
		}, []string{"all-reduce over logical of 2 cores: 2 of them, was 1; their operands are 800.04 KiB, were 5.00 KiB; " +
			"a core sends 800.04 KiB, was 5.00 KiB"}},
		"a longer prediction": {func(r *report.Report) { r.Predicted.Seconds, r.Predicted.Interconnect.Exposed = 4e-3, 2e-3 },
			[]string{"predicted time: 4.00 ms, was 3.00 ms (+33.3 %); waits for collectives 2.00 ms, were 1.00 ms"}},
		"larger code": {func(r *report.Report) { r.Memory.Code *= 2 },
			[]string{"code: 2.00 MiB, was 1.00 MiB (+100.0 %)"}},
		"a longer roofline": {func(r *report.Report) { r.Cost.RooflineSeconds *= 1.05 },
			[]string{"roofline: 2.10 ms, was 2.00 ms (+5.0 %)"}},
		"a longer compilation": {func(r *report.Report) { r.CompilingSeconds += 60 }, []string{"time to compile: 61."}},
		"a step that no longer fits": {func(r *report.Report) {
			r.Memory = report.Memory{Refused: true, Verdict: report.TooLarge, Needs: 30 << 30, Limit: 16 << 30}
		}, []string{"it no longer fits: it needs 30.00 GiB of the 16.00 GiB of a core"}},
		"more in the largest temporary": {func(r *report.Report) { r.Temporaries[0].Bytes *= 3 },
			[]string{"largest temporary: 1.15 MiB, was 392.00 KiB"}},
	} {
		before, after := slice(t), slice(t)
		before.CollectiveDTypes[0].DType, after.CollectiveDTypes[0].DType = "bf16", "bf16"
		of.change(after)
		text := worse(t, before, after)
		for _, want := range of.want {
			assert.Contains(t, text, want, name)
		}
	}
}

// An improvement by the compiler is no regression.
func TestAScatterInThePlaceOfASumIsNoAlarm(t *testing.T) {
	before, after := slice(t), slice(t)
	after.Collectives[0].Kind = "reduce-scatter"
	after.Collectives[0].Moved /= 2
	assert.Empty(t, worse(t, before, after))
	assert.NotEmpty(t, worse(t, after, before))
}

func TestWhatChangesNothingIsNoAlarm(t *testing.T) {
	before := compiled(t, usual)
	renamed := usual
	renamed.scope, renamed.seed = "blocks", 2
	for _, r := range []recipe{usual, renamed} {
		assert.Empty(t, worse(t, before, compiled(t, r)))
	}
	rng := rand.New(rand.NewPCG(1, 2))
	for i := range 48 {
		r := slice(t)
		shuffle(rng, r.Tensors)
		shuffle(rng, r.Collectives)
		shuffle(rng, r.CollectiveDTypes)
		names := map[string]string{}
		for k := range r.Tensors {
			if name := r.Tensors[k].Name; r.Tensors[k].Role == "variable" && i%2 == 0 {
				names[name] = fmt.Sprint("/scope", i, name)
				r.Tensors[k].Name = names[name]
			}
		}
		for k := range r.Temporaries {
			r.Temporaries[k].Source = fmt.Sprint("call.", i)
		}
		near := func(x *float64, by float64) { *x *= 1 + by*(2*rng.Float64()-1) }
		near(&r.Predicted.Seconds, 0.009)
		near(&r.Cost.RooflineSeconds, 0.009)
		near(&r.CompilingSeconds, 0.8)
		r.Memory.Code += rng.Int64N(1 << 16)
		r.Memory.Temporaries += rng.Int64N(1 << 12)
		r.Memory.Needs += rng.Int64N(1 << 12)
		var fields map[string]any // the field order in JSON differs
		data, err := json.Marshal(r)
		require.NoError(t, err)
		require.NoError(t, json.Unmarshal(data, &fields))
		data, err = json.Marshal(fields)
		require.NoError(t, err)
		again, err := report.Parse(data)
		require.NoError(t, err)
		assert.Empty(t, worse(t, slice(t), again), i)
	}
}

func shuffle[T any](rng *rand.Rand, list []T) {
	rng.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
}
