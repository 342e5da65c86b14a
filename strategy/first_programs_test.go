package strategy_test

import (
	"context"
	"regexp"
	"slices"
	"sync"
	"testing"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/core/tensors"
	"github.com/gomlx/gomlx/ml/model"
	"github.com/gomlx/gomlx/ml/model/initializer"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/internal/test/strategytest"
	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/pjrt"
	"github.com/tpustrategy/tpustrategy/pjrt/cache"
	"github.com/tpustrategy/tpustrategy/strategy"
)

// devicesOf is a compiler that records the number of devices of each program, by name.
type devicesOf struct {
	pjrt.Compiler
	mu       sync.Mutex
	programs map[string][]int
}

var moduleName = regexp.MustCompile(`module @(\w+)`)

func (c *devicesOf) Compile(ctx context.Context, client *pjrt.Client, p pjrt.Program,
	o pjrt.CompileOptions) (*pjrt.LoadedExecutable, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	name := string(moduleName.FindSubmatch(p.Code)[1])
	c.programs[name] = append(c.programs[name], len(slices.Concat(o.DeviceAssignment...)))
	return c.Compiler.Compile(ctx, client, p, o)
}

// TestFirstValuesAreMadeOnce uses 4 replicas of 2 logical devices. One device computes the
// replicated variables, two devices compute the split variables, and the other devices have
// separate copies. The programs are first compiled, and then loaded from the compiler's files.
func TestFirstValuesAreMadeOnce(t *testing.T) {
	files, err := cache.Open(t.TempDir(), cache.Options{})
	require.NoError(t, err)
	for range 2 {
		madeOnce(t, files)
	}
	assert.Equal(t, cache.Stats{Hits: 3, Misses: 3}, files.Stats())
}

func madeOnce(t *testing.T, by pjrt.Compiler) {
	ctx := context.Background()
	compiler := &devicesOf{Compiler: by, programs: map[string][]int{}}
	s := strategytest.New(t, 4, 2, strategy.Options{Compiler: compiler,
		Variables: logical.Rules{logical.Match("split", logical.SplitInto(1, 2))}})
	store := model.NewStore()
	store.SetParam(model.ParamInitialSeed, int64(7))
	f := s.Function(func(rc *strategy.ReplicaContext, _ []*graph.Node) []*graph.Node {
		for _, name := range []string{"/split", "/whole"} {
			v := store.VariableWithShape(name, shapes.Make(dtypes.Float32, 128, 256),
				initializer.RandomUniformFn(store.RootScope(), -1, 1))
			v.SetNodeValue(graph.AddScalar(v.NodeValue(rc.Graph()), 1)) // in place
		}
		return nil
	}, strategy.FunctionOptions{Name: "adds_one", Store: store})
	_, err := f.Run(ctx)
	require.NoError(t, err)
	slices.Sort(compiler.programs["first_value"])
	assert.Equal(t, map[string][]int{"first_value": {1, 2}, "adds_one": {8}}, compiler.programs)
	assert.Equal(t, 2, s.Variables(store).FirstValues().OnDevices)
	for _, v := range s.Variables(store).All() {
		first, err := store.GetVariable(v.Path()).Value()
		require.NoError(t, err)
		want := tensors.MustCopyFlatData[float32](first)
		for i := range want {
			want[i]++
		}
		for r := range 4 {
			got, err := v.Local(ctx, r)
			require.NoError(t, err)
			assert.InDeltaSlice(t, want, tensors.MustCopyFlatData[float32](got), 1e-6, "%s of replica %d", v.Path(), r)
		}
	}
}
