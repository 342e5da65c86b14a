package strategy_test

import (
	"bytes"
	"context"
	"fmt"
	"regexp"
	"slices"
	"testing"
	"time"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/core/tensors"
	"github.com/gomlx/gomlx/ml/layers"
	"github.com/gomlx/gomlx/ml/model"
	"github.com/gomlx/gomlx/ml/train/loss"
	"github.com/gomlx/gomlx/ml/train/optimizer"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/internal/test/plugintest"
	"github.com/tpustrategy/tpustrategy/internal/test/strategytest"
	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/report"
	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/strategy/train"
)

// classifierRules and classifier are a model with a hidden layer of 512, split first by columns and
// then by rows, and ten classes.
func classifierRules(p int) logical.Rules {
	return logical.Rules{
		logical.Match(`hidden/.*weights`, logical.SplitInto(1, p)),
		logical.Match(`hidden/.*biases`, logical.SplitInto(p)),
		logical.Match(`output/.*weights`, logical.SplitInto(p, 1)),
	}
}

func classifier(rc *strategy.ReplicaContext, in []*graph.Node) *graph.Node {
	h := layers.Dense(rc.Scope("hidden"), in[0], true, 512)
	h = graph.Tanh(logical.Split(h, 1, rc.Strategy().NumLogicalDevices()))
	logits := logical.Replicate(layers.Dense(rc.Scope("output"), h, true, 10))
	return graph.ReduceAllMean(loss.SparseCategoricalCrossEntropyLogits(in[1:2], []*graph.Node{logits}))
}

func classifierStep(strat *strategy.TPUStrategy) *train.Step {
	return strategytest.OK(train.New(strat, strategytest.SeededStore(), optimizer.Adam().LearningRate(1e-3).Done(),
		classifier, train.Options{}))
}

func classifierBatch(rows int) []any {
	return []any{shapes.Make(dtypes.Float32, rows, 784), shapes.Make(dtypes.Int32, rows, 1)}
}

// cores is the number of logical devices of the matrix's replicas.
const cores = 2

func TestAOTLargeStepsCompileForEveryGenerationOnOneHostAndMany(t *testing.T) {
	plugintest.Large(t)
	for _, name := range []string{
		"v2-8", "v2:4x4", "v3-8", "v3-32", "v4-8", "v4:2x2x4", "v5litepod-8", "v5e:4x4", "2x v5e:2x4", "v5p-8", "v5p:2x2x4",
		"v6e-8", "v6e:4x4", "tpu7x-8", "tpu7x:2x2x4", "v5p:16x16x16",
	} {
		t.Run(name, func(t *testing.T) {
			if !plugintest.TPUChild(t) {
				return
			}
			steps := map[string]func(*strategy.TPUStrategy) (*train.Step, []any){
				"classifier": func(s *strategy.TPUStrategy) (*train.Step, []any) {
					return classifierStep(s), classifierBatch(32 * s.NumReplicasInSync())
				},
				"annotated": func(s *strategy.TPUStrategy) (*train.Step, []any) {
					x, y := strategytest.BatchShapes(16 * s.NumReplicasInSync())
					return strategytest.AnnotatedStep(s), []any{x, y}
				},
			}
			rules := map[string]logical.Rules{"classifier": classifierRules(cores),
				"annotated": strategytest.AnnotatedRules(cores)}
			for _, model := range []string{"classifier", "annotated"} {
				strat := strategytest.Ahead(t, name, strategy.Options{LogicalDevices: cores, Variables: rules[model]})
				step, batch := steps[model](strat)
				compiled, err := step.Compiled(context.Background(), batch...)
				require.NoError(t, err)
				r, err := report.Of(compiled)
				require.NoError(t, err)
				require.Equal(t, report.Fits, r.Memory.Verdict, model)
				require.Equal(t, strat.Slice().Info().Devices, r.Replicas*r.LogicalDevices)
				require.Positive(t, r.Memory.Aliased, "variables are updated in place")
				replica, _ := r.CollectiveBytes("replica")
				require.Positive(t, replica, "gradients are summed: %+v", r.Collectives)
				local, _ := r.CollectiveBytes("logical")
				require.Positive(t, local, "activations are exchanged: %+v", r.Collectives)
				t.Logf("%s on %s: %v to lower, %v to compile", model, name, compiled.Lowering.Round(time.Millisecond),
					compiled.Compiling.Round(time.Millisecond))
			}
		})
	}
}

// TestAOTLargeOurPartHardlyGrowsWithTheSlice compares the time of tracing, lowering and reporting
// for 8 and for 4096 chips, without the plugin calls, and the total time with the compiler's time.
// Because other work may run on the machine, the times are compared within each round, and the test
// uses the median of the rounds.
func TestAOTLargeOurPartHardlyGrowsWithTheSlice(t *testing.T) {
	plugintest.Large(t)
	if !plugintest.TPUChild(t) {
		return
	}
	small, large := newTimed(t, "v5p:2x2x2"), newTimed(t, "v5p:16x16x16")
	growth, rounds := 0.0, []float64(nil)
	for len(rounds) < 5 || len(rounds) < 40 && growth > 1.15 {
		small.measure(t)
		large.measure(t)
		rounds = append(rounds, float64(large.ours())/float64(small.ours()))
		slices.Sort(rounds)
		growth = rounds[len(rounds)/2]
	}
	t.Log(small)
	t.Log(large)
	t.Logf("our part grows %.2f times, the median of %d rounds", growth, len(rounds))
	assert.LessOrEqual(t, growth, 1.2)
	assert.LessOrEqual(t, large.ratio, 1.3)
}

// timed is a step and the minimum times of its phases in the last round.
type timed struct {
	strat    *strategy.TPUStrategy
	compiled *strategy.CompiledStep
	// ratio is the total time divided by the compiler's time.
	ratio float64
	// told replays the plugin's recorded answers about the compiled step, so that the time of a
	// report excludes the plugin.
	told                           strategy.CompiledStep
	assigning, lowering, reporting time.Duration
}

func (m *timed) step() (*train.Step, []any) {
	return classifierStep(m.strat), classifierBatch(32 * m.strat.NumReplicasInSync())
}

func newTimed(t *testing.T, name string) *timed {
	t.Helper()
	start := time.Now()
	m := &timed{strat: strategytest.Ahead(t, name, strategy.Options{LogicalDevices: cores,
		Variables: classifierRules(cores)})}
	step, batch := m.step()
	var err error
	m.compiled, err = step.Compiled(context.Background(), batch...)
	require.NoError(t, err)
	_, err = report.Of(m.compiled)
	require.NoError(t, err)
	m.ratio = float64(time.Since(start)) / float64(m.compiled.Compiling)
	record, err := m.compiled.Program.Record()
	require.NoError(t, err)
	m.told = *m.compiled
	m.told.Program = record.Executable()
	return m
}

// measure measures each time again, as the minimum of many runs.
func (m *timed) measure(t *testing.T) {
	t.Helper()
	m.assigning, m.lowering, m.reporting = time.Hour, time.Hour, time.Hour
	least := func(best *time.Duration, f func() error) {
		for range 20 {
			start := time.Now()
			require.NoError(t, f())
			*best = min(*best, time.Since(start))
		}
	}
	least(&m.assigning, func() error {
		strat, err := strategy.NewAheadOfTime(m.strat.Slice(), strategy.Options{LogicalDevices: cores})
		if err != nil {
			return err
		}
		return strat.Close()
	})
	least(&m.lowering, func() error {
		step, batch := m.step()
		_, err := step.Lowered(context.Background(), batch...)
		return err
	})
	least(&m.reporting, func() error {
		_, err := report.Of(&m.told)
		return err
	})
}

// ours returns the time of tracing, lowering and reporting without the plugin.
func (m *timed) ours() time.Duration { return m.lowering + m.reporting }

func (m *timed) String() string {
	return fmt.Sprintf("%s: assign %v, trace and lower %v, report %v: ours %v; all of it %.3f times the compiler alone",
		m.strat.Slice().Info().Name, m.assigning, m.lowering, m.reporting, m.ours(), m.ratio)
}

// meshNumbers match the numbers in a module's text that depend on its mesh.
var meshNumbers = regexp.MustCompile(`(?m)^#replica_groups = .*$|mhlo\.num_partitions = \d+|sdy\.mesh @mesh = .*`)

func TestAOTTextIsTheSameForCPUAndTPU(t *testing.T) {
	if !plugintest.TPUChild(t) {
		return
	}
	ctx := context.Background()
	x, y := strategytest.BatchShapes(32)
	tpuStrategy := strategytest.Ahead(t, "v5e:2x2", strategytest.AnnotatedOptions())
	tpuStep, err := strategytest.AnnotatedStep(tpuStrategy).Compiled(ctx, x, y)
	require.NoError(t, err)
	cpuStrategy := strategytest.On(t, plugintest.System(t, 4), strategytest.AnnotatedOptions())
	cpuStep, err := strategytest.AnnotatedStep(cpuStrategy).Compiled(ctx, tensors.FromShape(x), tensors.FromShape(y))
	require.NoError(t, err)
	assert.Equal(t, string(cpuStep.Module.Text), string(tpuStep.Module.Text))

	// Another mesh only changes the sizes of the mesh in the step.
	wide := strategytest.Ahead(t, "v5e:4x4", strategy.Options{LogicalDevices: 2,
		Variables: strategytest.AnnotatedRules(2)})
	wideX, wideY := strategytest.BatchShapes(32 * 4)
	wideStep, err := strategytest.AnnotatedStep(wide).Compiled(ctx, wideX, wideY)
	require.NoError(t, err)
	body := func(text []byte) string {
		_, after, ok := bytes.Cut(text, []byte("func.func private @step"))
		require.True(t, ok)
		return string(after)
	}
	scale := regexp.MustCompile(`dense<(5\.0|1\.25)e-01>`) // the mean over the replicas
	assert.Equal(t, scale.ReplaceAllString(body(cpuStep.Module.Text), "dense<1/R>"),
		scale.ReplaceAllString(body(wideStep.Module.Text), "dense<1/R>"))
	assert.NotEqual(t, meshNumbers.FindAllString(string(cpuStep.Module.Text), -1),
		meshNumbers.FindAllString(string(wideStep.Module.Text), -1))
}

func TestAOTTextIsTheSameEachTime(t *testing.T) {
	if !plugintest.TPUChild(t) {
		return
	}
	var first []byte
	for range 3 {
		strat := strategytest.Ahead(t, "v5e:2x4", strategy.Options{LogicalDevices: 2,
			Variables: strategytest.AnnotatedRules(2)})
		x, y := strategytest.BatchShapes(32)
		step := strategytest.OK(train.New(strat, model.NewStore(), optimizer.Adam().Done(), strategytest.Annotated(2),
			train.Options{}))
		compiled, err := step.Compiled(context.Background(), x, y)
		require.NoError(t, err)
		if first == nil {
			first = compiled.Module.Text
		}
		require.True(t, bytes.Equal(first, compiled.Module.Text))
	}
}
