package pretrained_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"sync"
	"testing"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/ml/model"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/internal/engine/lazytensor"
	"github.com/tpustrategy/tpustrategy/internal/test/plugintest"
	"github.com/tpustrategy/tpustrategy/internal/test/strategytest"
	"github.com/tpustrategy/tpustrategy/lm/pretrained"
	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/pjrt/leaktest"
	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/tpu/simhost"
)

// countedParts is a tensor of consecutive numbers starting at first. It counts the elements that
// are read.
type countedParts struct {
	shape shapes.Shape
	first float32
	fail  error

	mu       sync.Mutex
	elements int
}

func counted(first float32, dims ...int) *countedParts {
	return &countedParts{shape: shapes.Make(dtypes.Float32, dims...), first: first}
}

func (c *countedParts) Shape() shapes.Shape { return c.shape }

func (c *countedParts) ReadPart(ctx context.Context, start, size []int, into []byte) error {
	if err := context.Cause(ctx); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.elements += len(into) / 4
	if c.fail != nil {
		return c.fail
	}
	for i := range len(into) / 4 {
		place, rest, stride := 0, i, 1
		for d := len(size) - 1; d >= 0; d-- {
			place += (start[d] + rest%size[d]) * stride
			rest /= size[d]
			stride *= c.shape.Dimensions[d]
		}
		binary.LittleEndian.PutUint32(into[4*i:], math.Float32bits(c.first+float32(place)))
	}
	return nil
}

// cellParts supports reading all cells together, and counts these reads.
type cellParts struct {
	*countedParts
	together int
}

func (c *cellParts) ReadCells(ctx context.Context, start, size, cells []int, into []byte) error {
	c.together++
	cell, index, bytes := make([]int, len(size)), make([]int, len(size)), 4
	for d, n := range size {
		cell[d] = n / cells[d]
		bytes *= cell[d]
	}
	for ; len(into) > 0; into = into[bytes:] {
		from := make([]int, len(size))
		for d := range from {
			from[d] = start[d] + index[d]*cell[d]
		}
		if err := c.ReadPart(ctx, from, cell, into[:bytes]); err != nil {
			return err
		}
		for d := len(index) - 1; d >= 0; d-- {
			if index[d]++; index[d] < cells[d] {
				break
			}
			index[d] = 0
		}
	}
	return nil
}

func (c *countedParts) all() []float64 {
	all := make([]float64, c.shape.Size())
	for i := range all {
		all[i] = float64(c.first) + float64(i)
	}
	return all
}

// sums is a step over variables of a store that returns the sum of each.
func sums(s *strategy.TPUStrategy, store *model.Store, variables map[string][]int, order ...string) *strategy.Function {
	return s.Function(func(rc *strategy.ReplicaContext, _ []*graph.Node) (out []*graph.Node) {
		for _, name := range order {
			v := rc.Scope().VariableWithShape(name, shapes.Make(dtypes.Float32, variables[name]...))
			out = append(out, graph.ReduceAllSum(v.NodeValue(rc.Graph())))
		}
		return out
	}, strategy.FunctionOptions{Store: store})
}

var partsOfTests = map[string][]int{"columns": {3, 4}, "rows": {8, 5}, "odd": {3, 7}, "whole": {6}, "scalar": {}}

// loadValues sets the variables of partsOfTests to values that are read in parts.
func loadValues(names ...string) (values []pretrained.Given, parts map[string]*countedParts) {
	parts = map[string]*countedParts{}
	for i, name := range names {
		parts[name] = counted(float32(100*i), partsOfTests[name]...)
		values = append(values, pretrained.Given{Path: "/" + name, Parts: parts[name]})
	}
	return values, parts
}

var partsNames = []string{"columns", "rows", "odd", "whole", "scalar"}

// TestLoadGivesEachDeviceItsParts loads before a trace, after a trace and after a step, on several
// meshes and with all state shardings. Dimensions that do not divide evenly are padded.
func TestLoadGivesEachDeviceItsParts(t *testing.T) {
	sys := plugintest.System(t, 8)
	ctx := context.Background()
	for _, mesh := range [][2]int{{1, 1}, {4, 2}, {2, 4}, {8, 1}} {
		for _, state := range []logical.StateSharding{logical.ShardNothing, logical.ShardParameters} {
			for _, when := range []string{"store", "traced", "live"} {
				t.Run(fmt.Sprintf("%v %s %s", mesh, state, when), func(t *testing.T) {
					opts := strategy.Options{Replicas: mesh[0], LogicalDevices: mesh[1], Variables: strategytest.Share(state, 2)}
					if mesh[1] > 1 {
						opts.Variables = append(opts.Variables, logical.Match("/columns", logical.SplitInto(1, mesh[1])),
							logical.Match("/rows", logical.SplitInto(mesh[1], 1)))
					}
					s := strategytest.On(t, sys, opts)
					store := model.NewStore()
					f := sums(s, store, partsOfTests, partsNames...)
					switch when {
					case "traced":
						_, err := f.Compiled(ctx)
						require.NoError(t, err)
					case "live":
						_, err := f.Run(ctx)
						require.NoError(t, err)
					}
					values, parts := loadValues(partsNames...)
					vs := s.Variables(store)
					report, err := pretrained.Give(ctx, s, store, values)
					require.NoError(t, err)
					if when == "store" {
						assert.Equal(t, []string{"/columns", "/rows", "/odd", "/whole", "/scalar"}, report.InStore)
						for name := range parts {
							assert.Zero(t, parts[name].elements, "nothing is read before it is needed")
						}
					} else {
						assert.Len(t, report.OnDevices, 5)
						bytes := 0
						for _, v := range vs.All() {
							bytes += 8 * v.BytesPerDevice()
						}
						if mesh[0]*mesh[1] == 1 {
							bytes /= 8
						}
						assert.Equal(t, bytes, report.DeviceBytes)
					}
					results, err := f.Run(ctx)
					require.NoError(t, err)
					for i, name := range partsNames {
						want := 0.0
						for _, x := range parts[name].all() {
							want += x
						}
						assert.Equal(t, []any{float32(want)}, strategytest.Values(t, results[i], 1), name)
						v, ok := vs.Lookup("/" + name)
						require.True(t, ok)
						value, err := v.Value(ctx)
						require.NoError(t, err)
						assert.Equal(t, parts[name].all(), strategytest.Numbers(t, value), name)
						assert.Equal(t, parts[name].shape.Size(), parts[name].elements, "%s: each element is read once", name)
					}
				})
			}
		}
	}
}

// TestLargePartsStayWhereTheyAreRead loads parts that devices of the CPU plugin store in place, and
// parts that several devices store. It updates them in place and loads them again.
func TestLargePartsStayWhereTheyAreRead(t *testing.T) {
	sys := plugintest.System(t, 8)
	ctx := context.Background()
	leaktest.Check(t)
	for _, mesh := range [][2]int{{1, 1}, {2, 2}, {8, 1}} {
		s, err := strategy.New(sys, strategy.Options{Replicas: mesh[0], LogicalDevices: mesh[1],
			Variables: append(logical.Rules{logical.Match("/large", logical.SplitInto(1, mesh[1]))},
				strategytest.Share(logical.ShardParameters, 1<<18)...)})
		require.NoError(t, err)
		store := model.NewStore()
		dims := map[string][]int{"large": {1000, 768}, "mirrored": {1 << 17}} // parts of 384 kB and more
		step := s.Function(func(rc *strategy.ReplicaContext, _ []*graph.Node) []*graph.Node {
			for name, d := range dims {
				v := rc.Scope().VariableWithShape(name, shapes.Make(dtypes.Float32, d...))
				v.SetNodeValue(graph.AddScalar(v.NodeValue(rc.Graph()), 1))
			}
			return nil
		}, strategy.FunctionOptions{Store: store})
		_, err = step.Compiled(ctx)
		require.NoError(t, err)
		for round := range 2 {
			large, mirrored := counted(float32(round), dims["large"]...),
				&cellParts{countedParts: counted(-5, dims["mirrored"]...)}
			inCells := &cellParts{countedParts: large}
			var largeParts lazytensor.Reader = large
			if round == 1 {
				largeParts = inCells
			}
			report, err := pretrained.Give(ctx, s, store, []pretrained.Given{{Path: "/large", Parts: largeParts},
				{Path: "/mirrored", Parts: mirrored}})
			require.NoError(t, err)
			assert.Equal(t, large.shape.Size(), large.elements, "each element is read once")
			assert.Zero(t, mirrored.together)
			if round == 1 && mesh[0] > 1 {
				assert.Equal(t, 1, inCells.together, "%v", mesh)
			}
			if mesh == [2]int{1, 1} {
				assert.Zero(t, report.StagedBytes, "nothing is copied")
			}
			for range 2 {
				_, err := step.Run(ctx)
				require.NoError(t, err)
			}
			for path, want := range map[string]*countedParts{"/large": large, "/mirrored": mirrored.countedParts} {
				v, ok := s.Variables(store).Lookup(path)
				require.True(t, ok)
				got, err := v.Value(ctx)
				require.NoError(t, err)
				all := want.all()
				for i := range all {
					all[i] += 2
				}
				assert.Equal(t, all, strategytest.Numbers(t, got), "%v %s", mesh, path)
			}
		}
		require.NoError(t, s.Close())
	}
}

// TestAProcessReadsWhatItsDevicesHold loads on simulated processes.
func TestAProcessReadsWhatItsDevicesHold(t *testing.T) {
	sys := plugintest.System(t, 8)
	for _, c := range []struct {
		processes, replicas, logicalDevices int
		state                               logical.StateSharding
		// elements is the number of elements of "rows" that one process reads.
		elements int
	}{{2, 1, 8, logical.ShardNothing, 20}, {4, 1, 8, logical.ShardNothing, 10}, {4, 4, 2, logical.ShardNothing, 40},
		{4, 4, 2, logical.ShardParameters, -1}, {2, 8, 1, logical.ShardParameters, 20}} {
		for _, traced := range []bool{false, true} {
			opts := strategy.Options{Replicas: c.replicas, LogicalDevices: c.logicalDevices,
				Variables: strategytest.Share(c.state, 2)}
			if c.logicalDevices > 1 {
				opts.Variables = append(opts.Variables, logical.Match("/rows", logical.SplitInto(c.logicalDevices, 1)))
			}
			strategytest.NoErrors(t, strategytest.OnProcesses(t, sys, simhost.Options{Processes: c.processes}, opts,
				func(ctx context.Context, s *strategy.TPUStrategy) error {
					store := model.NewStore()
					f := sums(s, store, partsOfTests, "rows")
					if traced {
						if _, err := f.Compiled(ctx); err != nil {
							return err
						}
					}
					values, parts := loadValues("rows")
					if _, err := pretrained.Give(ctx, s, store, values); err != nil {
						return err
					}
					results, err := f.Run(ctx)
					if err != nil {
						return err
					}
					sum, err := results[0].Local(ctx, s.LocalReplicas()[0])
					if err != nil {
						return err
					}
					assert.Equal(t, float32(780), sum.Value())
					want := c.elements
					if want < 0 { // two of five columns for each replica, as far as there are any
						want = 8 * max(0, min(2, 5-2*s.Process()))
					}
					assert.Equal(t, want, parts["rows"].elements, "%+v, process %d", c, s.Process())
					return nil
				}))
		}
	}
}

// TestAFailedLoadLeavesValues checks which variables change if a load ends early.
func TestAFailedLoadLeavesValues(t *testing.T) {
	ctx := context.Background()
	broken := errors.New("broken")
	s := strategytest.New(t, 2, 1)
	for _, live := range []bool{false, true} {
		store := model.NewStore()
		f := sums(s, store, partsOfTests, partsNames...)
		vs := s.Variables(store)
		_, err := f.Compiled(ctx)
		require.NoError(t, err)
		if live {
			before, _ := loadValues(partsNames...)
			_, err = pretrained.Give(ctx, s, store, before)
			require.NoError(t, err)
		}
		values, parts := loadValues(partsNames...)
		for _, p := range parts {
			p.first += 1000
		}
		parts["odd"].fail = broken
		_, err = pretrained.Give(ctx, s, store, values)
		require.ErrorIs(t, err, broken)
		var failed *pretrained.LoadError
		require.ErrorAs(t, err, &failed)
		if live {
			assert.Equal(t, []string{"/columns", "/rows"}, failed.Loaded)
			v, _ := vs.Lookup("/odd")
			value, err := v.Value(ctx)
			require.NoError(t, err)
			assert.Equal(t, 200.0, strategytest.Numbers(t, value)[0])
		} else {
			assert.Empty(t, failed.Loaded)
			assert.ErrorContains(t, err, "no variable has changed")
		}
		// Load can be called again.
		parts["odd"].fail = nil
		_, err = pretrained.Give(ctx, s, store, values)
		require.NoError(t, err)
		_, err = f.Run(ctx)
		require.NoError(t, err)
		v, _ := vs.Lookup("/whole")
		value, err := v.Value(ctx)
		require.NoError(t, err)
		assert.Equal(t, 1300.0, strategytest.Numbers(t, value)[0])
	}
}

// TestLoadRefusesWhatIsNoValue passes values that a caller may confuse with valid ones.
func TestLoadRefusesWhatIsNoValue(t *testing.T) {
	ctx := context.Background()
	s := strategytest.New(t, 1, 1)
	store := model.NewStore()
	_, err := sums(s, store, partsOfTests, "rows").Run(ctx)
	require.NoError(t, err)
	good := counted(0, 8, 5)
	cancelled, cancel := context.WithCancelCause(ctx)
	cancel(assert.AnError)
	for text, c := range map[string]struct {
		ctx    context.Context
		values []pretrained.Given
	}{
		"parts of (Float32)[5, 8]": {ctx, []pretrained.Given{{"/rows", counted(0, 5, 8)}}},
		assert.AnError.Error():     {cancelled, []pretrained.Given{{"/rows", good}}},
	} {
		_, err := pretrained.Give(c.ctx, s, store, c.values)
		var failed *pretrained.LoadError
		require.ErrorAs(t, err, &failed, text)
		assert.ErrorContains(t, err, text)
		assert.Empty(t, failed.Loaded)
	}
}

// TestATensorOfPartsIsAValueForAVariableOfTheStrategy passes such a value where a tensor is
// expected.
func TestATensorOfPartsIsAValueForAVariableOfTheStrategy(t *testing.T) {
	ctx := context.Background()
	s := strategytest.New(t, 2, 2)
	p := counted(1, 4, 6)
	v, err := s.NewVariable(ctx, lazytensor.FromReader(p), strategy.VariableOptions{Annotation: logical.SplitInto(1, 2)})
	require.NoError(t, err)
	require.NoError(t, v.Assign(ctx, lazytensor.FromReader(p)))
	assert.Equal(t, 48, p.elements, "each part once a time")
	assert.Equal(t, p.all(), strategytest.Numbers(t, strategytest.OK(v.Value(ctx))))
	host := lazytensor.FromReader(p)
	assert.Equal(t, p.all(), strategytest.Numbers(t, host))
	assert.Equal(t, []int{4, 6}, host.Shape().Dimensions)
}
