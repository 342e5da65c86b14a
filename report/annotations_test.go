package report_test

import (
	"context"
	"errors"
	"maps"
	"testing"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/graph"
	gomlxlayers "github.com/gomlx/gomlx/ml/layers"
	"github.com/gomlx/gomlx/ml/model"
	"github.com/gomlx/gomlx/ml/train/optimizer"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/internal/test/plugintest"
	"github.com/tpustrategy/tpustrategy/internal/test/strategytest"
	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/lowering/spmd"
	"github.com/tpustrategy/tpustrategy/pjrt"
	"github.com/tpustrategy/tpustrategy/report"
	"github.com/tpustrategy/tpustrategy/report/hlo"
	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/strategy/train"
	"github.com/tpustrategy/tpustrategy/tpu/system"
)

// splits are the annotations of a small step over the axis "model": of variables by scope, and of
// values by position.
type splits map[string]logical.Annotation

var (
	columns, rows, whole = logical.SplitOverAxes("-", "model"), logical.SplitOverAxes("model", "-"), logical.Replicated()
	steps                = map[string]struct {
		splits
		loss  func(s splits, scope func(name ...string) *model.Scope, x *graph.Node) *graph.Node
		batch shapes.Shape
	}{
		"attention": {splits{"query": columns, "key": columns, "value": columns, "output": rows}, attention,
			shapes.Make(dtypes.Float32, 8, 4, 16)},
		"products": {splits{"up": columns, "down": rows}, products, shapes.Make(dtypes.Float32, 32, 16)},
		"words":    {splits{"head": columns}, words, shapes.Make(dtypes.Int32, 8, 4)},
	}
)

func dense(scope *model.Scope, x *graph.Node, width int) *graph.Node {
	return gomlxlayers.Dense(scope, x, false, width)
}

func attention(s splits, scope func(name ...string) *model.Scope, x *graph.Node) *graph.Node {
	heads := func(x *graph.Node) *graph.Node { return graph.Reshape(x, 8, 4, 4, 4) }
	q, k, v := heads(dense(scope("query"), x, 16)), heads(dense(scope("key"), x, 16)), heads(dense(scope("value"), x, 16))
	a := graph.Einsum("bhqk,bkhd->bqhd", graph.Tanh(graph.Einsum("bqhd,bkhd->bhqk", q, k)), v)
	a = logical.Apply(graph.Reshape(a, 8, 4, 16), s["heads"])
	return logical.Apply(dense(scope("output"), a, 16), s["residual"])
}

func products(s splits, scope func(name ...string) *model.Scope, x *graph.Node) *graph.Node {
	gain := scope("scale").VariableWithShape("gain", shapes.Make(dtypes.Float32, 16)).NodeValue(x.Graph())
	h := dense(scope("up"), graph.Mul(x, graph.ExpandLeftToRank(gain, 2)), 64)
	h = logical.Apply(graph.Tanh(h), s["hidden"])
	y := logical.Apply(dense(scope("down"), h, 16), s["residual"])
	return graph.Tanh(y)
}

func words(s splits, scope func(name ...string) *model.Scope, x *graph.Node) *graph.Node {
	y := gomlxlayers.Embedding(scope("embedding"), x, dtypes.Float32, 64, 16)
	return graph.Tanh(logical.Apply(dense(scope("head"), y, 64), s["logits"]))
}

// little compiles a training step of one of the small steps with other splits.
func little(t *testing.T, sys *system.System, name string, other splits, by ...pjrt.Compiler) *strategy.CompiledStep {
	of, s := steps[name], splits{}
	maps.Copy(s, of.splits)
	maps.Copy(s, other)
	var rules logical.Rules
	for _, scope := range []string{"query", "key", "value", "output", "up", "down", "head", "embedding", "scale"} {
		if a := s[scope]; a.Kind() != logical.KindNone {
			rules = append(rules, logical.Match("^/"+scope+"/", a))
		}
	}
	opts := strategy.Options{Replicas: 1, LogicalAxes: strategytest.Axes("model"), Variables: rules}
	if len(by) > 0 {
		opts.Compiler = by[0]
	}
	strat := strategytest.On(t, sys, opts)
	step, err := train.New(strat, model.NewStore(), optimizer.StochasticGradientDescent().Done(),
		func(rc *strategy.ReplicaContext, in []*graph.Node) *graph.Node {
			return graph.ReduceAllMean(graph.Square(of.loss(s, rc.Scope, in[0])))
		}, train.Options{})
	require.NoError(t, err)
	compiled, err := step.Compiled(t.Context(), of.batch)
	require.NoError(t, err)
	return compiled
}

// Each case has one bad annotation. The suggestion removes the collective that it causes, and the
// step then sends no more than with the good annotation.
func TestABetterSplitIsSuggested(t *testing.T) {
	sys := plugintest.System(t, 2)
	find := func(step *strategy.CompiledStep) *report.AnnotationSuggestions {
		suggested, err := report.SuggestAnnotations(t.Context(), step, report.AnnotationOptions{Most: 6})
		require.NoError(t, err)
		return suggested
	}
	least := map[string]int64{}
	for name := range steps {
		suggested := find(little(t, sys, name, nil))
		assert.Empty(t, suggested.All, "%s: nothing is better than the good splits", name)
		least[name] = suggested.Now.Sent
	}
	for name, bad := range map[string]struct {
		step string
		splits
	}{
		"query by rows":       {"attention", splits{"query": rows}},
		"value by rows":       {"attention", splits{"value": rows}},
		"output by columns":   {"attention", splits{"output": columns}},
		"heads whole":         {"attention", splits{"heads": whole}},
		"up by rows":          {"products", splits{"up": rows}},
		"down by columns":     {"products", splits{"down": columns}},
		"a scale":             {"products", splits{"scale": logical.SplitOverAxes("model")}},
		"features whole":      {"products", splits{"hidden": whole}},
		"features by example": {"products", splits{"hidden": rows}},
		"residual by width":   {"products", splits{"residual": columns}},
		"embedding by width":  {"words", splits{"embedding": columns}},
		"logits whole":        {"words", splits{"logits": whole}},
	} {
		t.Run(name, func(t *testing.T) {
			suggested := find(little(t, sys, bad.step, bad.splits))
			assert.Greater(t, suggested.Now.Sent, least[bad.step], "it costs something")
			require.NotEmpty(t, suggested.All)
			best := suggested.All[0]
			t.Logf("%s from %s to %s, of %d tried", best.Name, best.From, best.To, suggested.Tried)
			require.NotEmpty(t, best.Removes)
			assert.NotEmpty(t, best.Removes[0].Collectives)
			assert.Contains(t, best.Removes[0].String(), "annotations_test.go:")
			assert.LessOrEqual(t, best.After.Sent, least[bad.step])
		})
	}
}

// stubborn is a compiler that rejects every other variant.
type stubborn struct {
	pjrt.Compiler
	asked int
}

func (s *stubborn) Compile(ctx context.Context, client *pjrt.Client, program pjrt.Program,
	opts pjrt.CompileOptions) (*pjrt.LoadedExecutable, error) {
	if s.asked++; s.asked > 2 && s.asked%2 == 1 { // after the step and one unchanged variant
		return nil, errors.New("refused")
	}
	return s.Compiler.Compile(ctx, client, program, opts)
}

func TestAnnotationsAreSuggestedAmongWhatCompiles(t *testing.T) {
	sys := plugintest.System(t, 2)
	bad := little(t, sys, "products", splits{"hidden": whole}, &stubborn{Compiler: plugintest.Programs(t)})
	suggested, err := report.SuggestAnnotations(t.Context(), bad, report.AnnotationOptions{Most: 5})
	require.NoError(t, err)
	assert.Equal(t, 5, suggested.Tried)
	assert.Equal(t, 3, suggested.Refused)
	assert.Positive(t, suggested.Left)

	refuse := errors.New("refused")
	_, err = report.SuggestAnnotations(t.Context(), bad, report.AnnotationOptions{Try: func(context.Context,
		*spmd.Module) (pjrt.Program, error) {
		return pjrt.Program{}, refuse
	}})
	require.ErrorIs(t, err, refuse, "the step as it is")
	_, err = report.SuggestAnnotations(t.Context(), bad, report.AnnotationOptions{Try: func(context.Context,
		*spmd.Module) (pjrt.Program, error) {
		return pjrt.Program{Code: []byte("nonsense"), Format: pjrt.FormatHLO}, nil
	}})
	require.ErrorIs(t, err, hlo.ErrProgram)
}

func TestSuggestionsOfASearchThatIsCanceled(t *testing.T) {
	sys := plugintest.System(t, 2)
	bad := little(t, sys, "products", splits{"hidden": whole})
	ctx, cancel := context.WithCancel(t.Context())
	suggested, err := report.SuggestAnnotations(ctx, bad, report.AnnotationOptions{Progress: func(tried, _ int) {
		if tried == 3 {
			cancel()
		}
	}})
	require.ErrorIs(t, err, context.Canceled)
	assert.Equal(t, errkind.CancelledError, errkind.KindOf(err))
	require.NotNil(t, suggested)
	assert.Equal(t, 3, suggested.Tried)
	assert.Positive(t, suggested.Left)
	require.NotEmpty(t, suggested.All, "what was found before is kept")
	assert.Equal(t, "none", suggested.All[0].To)
}

func TestAStepWithoutCollectivesHasNoAnnotationSuggestions(t *testing.T) {
	sys := plugintest.System(t, 2)
	step := little(t, sys, "products", splits{"up": {}, "down": {}})
	suggested, err := report.SuggestAnnotations(t.Context(), step, report.AnnotationOptions{})
	require.NoError(t, err)
	assert.Equal(t, &report.AnnotationSuggestions{All: []report.AnnotationSuggestion{}, Now: suggested.Now}, suggested)
	assert.Zero(t, suggested.Now.Sent)
	step.Module.ReleaseTrace()
	_, err = report.SuggestAnnotations(t.Context(), step, report.AnnotationOptions{})
	assert.Equal(t, errkind.FailedPreconditionError, errkind.KindOf(err))
}
