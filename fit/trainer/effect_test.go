package trainer_test

import (
	"bytes"
	"flag"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/ml/layers"
	"github.com/gomlx/gomlx/ml/train/optimizer"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/aot"
	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/fit/trainer"
	"github.com/tpustrategy/tpustrategy/internal/command"
	"github.com/tpustrategy/tpustrategy/internal/test/plugintest"
	"github.com/tpustrategy/tpustrategy/internal/test/strategytest"
	"github.com/tpustrategy/tpustrategy/lowering/precision"
	"github.com/tpustrategy/tpustrategy/lowering/remat"
	"github.com/tpustrategy/tpustrategy/pjrt/worker"
	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/strategy/train"
)

// parse returns the flags of a program on one CPU device.
func parse(t *testing.T, args ...string) *trainer.Flags {
	f := trainer.AddFlags(flag.NewFlagSet("program", flag.ContinueOnError), trainer.Defaults{Steps: 1, Devices: 1})
	require.NoError(t, f.Parse(append(args, "-plugin", plugintest.Path(t, "cpu")), io.Discard))
	return f
}

// open opens the devices of the flags.
func open(t *testing.T, f *trainer.Flags) *strategy.TPUStrategy {
	t.Setenv("TMPDIR", t.TempDir())
	s, done, err := f.Open(t.Context(), f.StrategyOptions(nil), 0)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, done()) })
	return s
}

// tokens returns a loss over integers.
func tokens(compute bool, keep remat.Policy) train.Loss {
	return func(rc *strategy.ReplicaContext, in []*graph.Node) *graph.Node {
		x := graph.ConvertDType(in[0], dtypes.Float32)
		if compute {
			x = precision.Compute(x)
		}
		x = remat.Block(keep, x, func(x *graph.Node) *graph.Node {
			return graph.Tanh(layers.Dense(rc.Scope("a"), x, true,
				4))
		})
		return graph.ReduceAllMean(precision.Output(layers.Dense(rc.Scope("b"), x, true, 1)))
	}
}

var batch = [][]int32{{1, 2}, {3, 4}}

// A flag that does not change the program of the step is an error of the step's trace.
func TestAFlagWithoutEffectIsAnError(t *testing.T) {
	for name, c := range map[string]struct {
		args    []string
		compute bool // the model converts its input
		pass    bool // the policies are passed to the step and to its blocks
		want    string
	}{
		"no flags": {nil, false, false, ""},
		"float32":  {[]string{"-precision", "f32"}, false, true, ""},
		"bfloat16": {[]string{"-precision", "bf16"}, true, true, ""},
		"nothing computed": {[]string{"-precision", "bf16"}, false, true,
			"no operation of the model computes in BFloat16"},
		"policy not passed": {[]string{"-precision", "bf16"}, true, false,
			"flag -precision: it has no effect: .*; pass Flags.Precision to train.New"},
		"full":     {[]string{"-remat", "full"}, false, true, ""},
		"products": {[]string{"-remat", "products"}, false, true, ""},
		"none":     {[]string{"-remat", "none"}, false, false, ""},
		"nothing is in blocks": {[]string{"-remat", "full"}, false, false,
			`flag -remat: it has no effect: .*; build the layers in remat.Block\(Flags.Keep, ...\)`},
		"products not in block": {[]string{"-remat", "products"}, false, false, "flag -remat: it has no effect"},
	} {
		t.Run(name, func(t *testing.T) {
			f := parse(t, c.args...)
			s := open(t, f)
			var o train.Options
			keep := remat.Everything()
			if c.pass {
				o.Precision, keep = f.Precision, f.Remat
			}
			step := strategytest.OK(train.New(s, f.NewStore(), optimizer.Adam().Done(), tokens(c.compute, keep), o))
			m, err := step.Lowered(t.Context(), batch)
			if c.want != "" {
				require.Error(t, err)
				assert.Regexp(t, c.want, err.Error())
				assert.Equal(t, errkind.ValueError, errkind.KindOf(err))
				_, err = step.Run(t.Context(), batch)
				assert.Error(t, err, "no step is taken")
				return
			}
			require.NoError(t, err)
			assert.Equal(t, name == "bfloat16", bytes.Contains(m.Text, []byte("bf16")))
		})
	}
}

// The check also applies to a training step that was not created by train.New.
func TestAFunctionThatTrainsUsesTheFlags(t *testing.T) {
	f := parse(t, "-remat", "full")
	s := open(t, f)
	ignores := func(rc *strategy.ReplicaContext, in []*graph.Node) []*graph.Node {
		l := tokens(false, remat.Everything())(rc, in)
		v := rc.Scope("b", "dense").GetVariable("weights")
		v.SetNodeValue(graph.Sub(v.NodeValue(rc.Graph()), rc.AllReduce(strategy.Mean,
			graph.Gradient(l, v.NodeValue(rc.Graph()))[0])))
		return []*graph.Node{l}
	}
	_, err := s.Function(ignores, strategy.FunctionOptions{Store: f.NewStore(), SplitBatch: true}).Run(t.Context(), batch)
	assert.ErrorContains(t, err, "flag -remat: it has no effect")
	_, err = s.Function(func(rc *strategy.ReplicaContext, in []*graph.Node) []*graph.Node {
		return []*graph.Node{tokens(false, remat.Everything())(rc, in)}
	}, strategy.FunctionOptions{Store: f.NewStore(), SplitBatch: true}).Run(t.Context(), batch)
	assert.NoError(t, err, "a function that only evaluates has no backward pass")
	uses := strategytest.OK(train.New(s, f.NewStore(), optimizer.Adam().Done(), tokens(false, f.Remat), train.Options{}))
	_, err = uses.Run(t.Context(), batch)
	require.NoError(t, err)
	_, err = s.Function(ignores, strategy.FunctionOptions{Store: f.NewStore(), SplitBatch: true}).Run(t.Context(), batch)
	assert.NoError(t, err, "the flag has an effect on another step")
}

// A compilation for a slice checks the flags like a run.
func TestACompilationForASliceChecksTheFlags(t *testing.T) {
	compile := func(pass bool) (int, string) {
		dir := t.TempDir()
		stderr, err := os.Create(filepath.Join(dir, "stderr"))
		require.NoError(t, err)
		defer stderr.Close()
		was, wasOut := os.Stderr, os.Stdout
		os.Stderr, os.Stdout = stderr, stderr
		defer func() { os.Stderr, os.Stdout = was, wasOut }()
		f := parse(t, "-topology", "cpu:2", "-remat", "full", "-text", filepath.Join(dir, "text"))
		code := f.Main(t.Context(), f.StrategyOptions(nil), func(s *strategy.TPUStrategy) (aot.Step, []any, error) {
			keep := remat.Everything()
			if pass {
				keep = f.Remat
			}
			step, err := train.New(s, f.NewStore(), optimizer.Adam().Done(), tokens(false, keep), train.Options{})
			return step, []any{batch}, err
		})
		said, err := os.ReadFile(stderr.Name())
		require.NoError(t, err)
		return code, string(said)
	}
	code, said := compile(false)
	assert.Equal(t, command.Failed, code)
	assert.Contains(t, said, "flag -remat: it has no effect")
	code, said = compile(true)
	assert.Equal(t, command.OK, code, said)
}

func TestMain(m *testing.M) {
	plugintest.PlainCode()
	if os.Getenv(programVariable) != "" {
		os.Exit(trainer.Main("program", program))
	}
	worker.Main() // a compilation starts this binary as its compiler
	os.Exit(m.Run())
}
