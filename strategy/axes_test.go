package strategy_test

import (
	"context"
	"regexp"
	"strings"
	"testing"

	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/core/tensors"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/internal/test/plugintest"
	"github.com/tpustrategy/tpustrategy/internal/test/strategytest"
	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/report"
	"github.com/tpustrategy/tpustrategy/sharding"
	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/tpu/simhost"
)

func TestLogicalAxesThatAreNotRightAreRefused(t *testing.T) {
	sys := plugintest.System(t, 8)
	pairs := strategytest.Axes("model", "sequence")
	for says, opts := range map[string]strategy.Options{
		"model=2,sequence=2 have 4 devices, but a replica has 2": {LogicalDevices: 2, LogicalAxes: pairs},
		"option LogicalAxes: not right: logical: axes: invalid axes: sharding: mesh axis 0: " +
			"the name is empty": {LogicalAxes: strategytest.Axes("")},
		`mesh axis "model": the name is used twice`:        {LogicalAxes: strategytest.Axes("model", "model")},
		`axis name "replica" is reserved for the replicas`: {LogicalAxes: strategytest.Axes("replica")},
		"its size is 0":         {LogicalAxes: []sharding.Axis{{Name: "model"}}},
		"no block of 3 devices": {LogicalAxes: []sharding.Axis{{Name: "model", Size: 3}}},
		`rule 0 ("w" to -,modle): dimension 1 is split over axis "modle", which the replica does not have; use one of replica=2,model=2,sequence=2, or add the axis to the replica`: {
			LogicalAxes: pairs, Variables: logical.Rules{logical.Match("w", logical.SplitOverAxes("", "modle"))}},
		`axis "model" splits dimension 0 and dimension 1`: {LogicalAxes: pairs,
			Variables: logical.Rules{logical.Match("w", logical.SplitOverAxes("model", "model"))}},
		"dimension 0 has an empty axis name": {LogicalAxes: pairs,
			Variables: logical.Rules{logical.Match("w", logical.SplitOverAxes("model,"))}},
		`replica+model): logical: split: dimension 0 is split over the replicas and over logical axes; split another`: {
			LogicalAxes: pairs, Variables: logical.Rules{logical.Match("w", logical.SplitOverAxes("replica,model"))}},
		`axis "replica" splits dimension 0 and dimension 1`: {LogicalAxes: pairs,
			Variables: logical.Rules{logical.Match("w", logical.SplitOverAxes("replica", "replica"))}},
	} {
		_, err := strategy.New(sys, opts)
		var bad *strategy.OptionError
		require.ErrorAs(t, err, &bad, says)
		assert.ErrorContains(t, err, says)
	}
	s := strategytest.On(t, sys, strategy.Options{LogicalAxes: pairs})
	assert.Equal(t, 4, s.NumLogicalDevices())
	assert.Equal(t, 2, s.NumReplicasInSync())
	assert.Equal(t, "model=2,sequence=2", s.LogicalMesh().String())
	assert.Equal(t, "logical=2", strategytest.On(t, sys, strategy.Options{LogicalDevices: 2}).LogicalMesh().String())
	_, err := s.Mirror(t.Context(), []float32{1, 2, 3}, logical.SplitOverAxes("sequence"))
	var misfit *logical.Error
	require.ErrorAs(t, err, &misfit)
	assert.Equal(t, 0, misfit.Dim)
	assert.ErrorContains(t, err,
		"dimension 0 of size 3 is not divisible into 2 parts (sequence=2); pad the dimension to 4")
}

func TestTheAxisOfTheReplicasIsRefusedWhereNoVariableOfAStoreIs(t *testing.T) {
	sys := plugintest.System(t, 4)
	s := strategytest.On(t, sys, strategy.Options{Replicas: 2, LogicalAxes: strategytest.Axes("model"),
		Variables: logical.Rules{{Pattern: regexp.MustCompile("mine"), Annotation: logical.SplitOverAxes("replica"),
			Optional: true}}})
	step := func(_ *strategy.ReplicaContext, in []*graph.Node) []*graph.Node {
		return []*graph.Node{logical.SplitOver(in[0], "replica")}
	}
	same := func(_ *strategy.ReplicaContext, in []*graph.Node) []*graph.Node { return in }
	over := []logical.Annotation{logical.SplitOverAxes("replica")}
	x := []float32{1, 2}
	for name, err := range map[string]error{
		"a value":     strategytest.Err(s.Mirror(t.Context(), x, over[0])),
		"a variable":  strategytest.Err(s.NewVariable(t.Context(), x, strategy.VariableOptions{Name: "mine"})),
		"a node":      strategytest.Err(s.Function(step, strategy.FunctionOptions{}).Run(t.Context(), x)),
		"a result":    strategytest.Err(s.Function(same, strategy.FunctionOptions{Results: over}).Run(t.Context(), x)),
		"an argument": strategytest.Err(s.Function(same, strategy.FunctionOptions{Arguments: over}).Run(t.Context(), x)),
	} {
		var misfit *logical.Error
		require.ErrorAs(t, err, &misfit, name)
		assert.Equal(t, "dimension 0 is split over the replicas", misfit.Reason, name)
		assert.Contains(t, misfit.Hint, "only rules for the variables of a store name the replicas", name)
	}
	opts := strategytest.NamedOptions(2, strategytest.Axes("model")...)
	opts.Variables = logical.Rules{logical.Match("weights_1st_moment$", logical.SplitOverAxes("model", "replica")),
		logical.Match("^/up/.*weights", logical.SplitOverAxes("replica", "model"))}
	s = strategytest.On(t, sys, opts)
	batch, target := strategytest.NamedBatch(0)
	_, err := strategytest.NamedStep(s).Run(t.Context(), batch, target)
	assert.ErrorContains(t, err, `rule 0 cuts dimension 1 over the replicas, and as state of "/up/dense/weights" it is `+
		`dimension 0 of 8 over the replicas; let one rule reach both variables`)
}

// TestValuesOverNamedAxes creates, reshards and reads values that are split over some of the axes.
func TestValuesOverNamedAxes(t *testing.T) {
	ctx := context.Background()
	s := strategytest.On(t, plugintest.System(t, 8), strategy.Options{LogicalAxes: strategytest.Axes("model", "sequence")})
	x := make([][]float32, 4)
	for i := range x {
		x[i] = []float32{float32(4 * i), float32(4*i + 1), float32(4*i + 2), float32(4*i + 3)}
	}
	for _, c := range []struct {
		a      logical.Annotation
		starts [][]int
	}{
		{logical.SplitOverAxes("model", ""), [][]int{{0, 0}, {0, 0}, {2, 0}, {2, 0}}},
		{logical.SplitOverAxes("", "sequence"), [][]int{{0, 0}, {0, 2}, {0, 0}, {0, 2}}},
		{logical.SplitOverAxes("sequence", "model"), [][]int{{0, 0}, {2, 0}, {0, 2}, {2, 2}}},
		{logical.SplitOverAxes("sequence,model", ""), [][]int{{0, 0}, {2, 0}, {1, 0}, {3, 0}}},
		{logical.SplitInto(2, 2), [][]int{{0, 0}, {0, 2}, {2, 0}, {2, 2}}},
		{logical.SplitOverAxes("", ""), [][]int{{0, 0}, {0, 0}, {0, 0}, {0, 0}}},
	} {
		m, err := s.Mirror(ctx, x, c.a)
		require.NoError(t, err)
		var starts [][]int
		for _, shard := range m.Shards()[:4] {
			starts = append(starts, shard.Start)
		}
		assert.Equal(t, c.starts, starts, "%s", c.a)
		back, err := m.Value(ctx)
		require.NoError(t, err)
		assert.Equal(t, x, back.Value(), "%s", c.a)
		columns := logical.SplitOverAxes("", "sequence,model")
		f := s.Function(func(rc *strategy.ReplicaContext, in []*graph.Node) []*graph.Node {
			return []*graph.Node{rc.AllReduce(strategy.Sum, logical.SplitOver(in[0], "model", ""))}
		}, strategy.FunctionOptions{Arguments: []logical.Annotation{columns},
			Results: []logical.Annotation{logical.SplitOverAxes("sequence", "")}})
		results, err := f.Run(ctx, m)
		require.NoError(t, err)
		sum, err := results[0].Local(ctx, 1)
		require.NoError(t, err)
		assert.Equal(t, float32(2*15), sum.Value().([][]float32)[3][3], "%s", c.a)
		require.NoError(t, m.Close())
	}
	// Tensors with different shapes are padded to multiples of the axes.
	ragged, err := s.PerReplica(ctx, []any{[]float32{1, 2, 3, 4, 5}, []float32{6}},
		logical.SplitOverAxes("sequence,model"))
	require.NoError(t, err)
	assert.Equal(t, []int{8}, ragged.Shape().Dimensions)
	require.NoError(t, ragged.Close())
	// Values with equal layouts are not copied.
	m, err := s.Mirror(ctx, x, logical.SplitInto(2, 2))
	require.NoError(t, err)
	defer m.Close()
	f := s.Function(func(_ *strategy.ReplicaContext, in []*graph.Node) []*graph.Node { return in },
		strategy.FunctionOptions{Arguments: []logical.Annotation{logical.SplitOverAxes("model", "sequence")}, Name: "same"})
	compiled, err := f.Compiled(ctx, m)
	require.NoError(t, err)
	assert.Equal(t, logical.SplitOverAxes("model", "sequence"), compiled.Module.Arguments[0].Annotation)
}

func TestAxesOfOneDeviceSplitNothing(t *testing.T) {
	for _, replicas := range []int{1, 2} {
		axes := []sharding.Axis{{Name: "model", Size: 1}, {Name: "sequence", Size: 1}}
		s := strategytest.On(t, plugintest.System(t, replicas), strategy.Options{LogicalAxes: axes})
		f := s.Function(func(rc *strategy.ReplicaContext, in []*graph.Node) []*graph.Node {
			return []*graph.Node{rc.AllReduce(strategy.Sum, logical.SplitOver(in[0], "sequence,model"))}
		}, strategy.FunctionOptions{Arguments: []logical.Annotation{logical.SplitOverAxes("model")}})
		results, err := f.Run(t.Context(), []float32{1, 2, 3})
		require.NoError(t, err)
		sum, err := results[0].Local(t.Context(), 0)
		require.NoError(t, err)
		assert.Equal(t, float32(3*replicas), tensors.MustCopyFlatData[float32](sum)[2])
	}
}

// TestProcessesReadPartsThatSeveralDevicesHold uses a replica over several processes. Each process
// has every shard of a tensor that is split over one axis, but not of a tensor that is split over
// the other.
func TestProcessesReadPartsThatSeveralDevicesHold(t *testing.T) {
	sys := plugintest.System(t, 4)
	x := []float32{1, 2, 3, 4}
	opts := strategy.Options{Replicas: 1, LogicalAxes: strategytest.Axes("model", "sequence")}
	strategytest.NoErrors(t, strategytest.OnProcesses(t, sys, simhost.Options{Processes: 2}, opts,
		func(ctx context.Context, s *strategy.TPUStrategy) error {
			for _, c := range []struct {
				over string
				here bool // every process has all shards
			}{{"sequence", true}, {"model", false}, {"model,sequence", false}} {
				m, err := s.Mirror(ctx, x, logical.SplitOverAxes(c.over))
				if err != nil {
					return err
				}
				local, err := m.Local(ctx, 0)
				if c.here {
					if assert.NoError(t, err, c.over) {
						assert.Equal(t, x, tensors.MustCopyFlatData[float32](local))
					}
				} else {
					assert.ErrorIs(t, err, strategy.ErrRemote, c.over)
				}
				v, err := s.NewVariable(ctx, x, strategy.VariableOptions{Name: strings.ReplaceAll(c.over, ",", "_"),
					Annotation: logical.SplitOverAxes(c.over)})
				if err != nil {
					return err
				}
				value, err := v.Value(ctx)
				if err != nil {
					return err
				}
				assert.Equal(t, x, tensors.MustCopyFlatData[float32](value), c.over)
			}
			return nil
		}))
}

// TestProcessesTrainOverNamedAxesAsOneDoes trains on a replica that spans two processes.
func TestProcessesTrainOverNamedAxesAsOneDoes(t *testing.T) {
	sys := plugintest.System(t, 4)
	opts := strategytest.NamedOptions(1, strategytest.Axes("model", "sequence")...)
	want := strategytest.NamedLosses(t, strategytest.NamedStep(strategytest.On(t, sys, opts)), 0, 3)
	got := make([][]float64, 2)
	strategytest.NoErrors(t, strategytest.OnProcesses(t, sys, simhost.Options{Processes: 2}, opts,
		func(ctx context.Context, s *strategy.TPUStrategy) error {
			step := strategytest.NamedStep(s)
			for i := range 3 {
				x, y := strategytest.NamedBatch(i)
				loss, err := step.Run(ctx, x, y)
				if err != nil {
					return err
				}
				value, err := loss.Float64(ctx)
				if err != nil {
					return err
				}
				got[s.Process()] = append(got[s.Process()], value)
			}
			return nil
		}))
	assert.Equal(t, [][]float64{want, want}, got)
}

func TestNamedAxesCompileForASlice(t *testing.T) {
	if !plugintest.TPUChild(t) {
		return
	}
	opts := strategytest.NamedOptions(4, strategytest.Axes("model", "sequence")...)
	s := strategytest.Ahead(t, "v5e:4x4", opts)
	x, y := strategytest.NamedShapes(8 * s.NumReplicasInSync())
	compiled, err := strategytest.NamedStep(s).Compiled(t.Context(), x, y)
	require.NoError(t, err)
	assert.Contains(t, string(compiled.Module.Text), `sdy.mesh @mesh = <["replica"=4, "model"=2, "sequence"=2]>`)
	r, err := report.Of(compiled)
	require.NoError(t, err)
	require.Equal(t, report.Fits, r.Memory.Verdict)
	for _, axis := range []string{"replica", "model", "sequence"} {
		bytes, _ := r.CollectiveBytes(axis)
		assert.Positive(t, bytes, "%s: %+v", axis, r.Collectives)
	}
	assert.NotZero(t, r.Memory.Aliased)
}
