package conformance

import (
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/tensors"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/internal/test/plugintest"
	"github.com/tpustrategy/tpustrategy/internal/test/strategytest"
	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/strategy/eager"
	"github.com/tpustrategy/tpustrategy/tpu/system"
)

// world contains the devices and the strategies that cases share.
type world struct {
	t          *testing.T
	sys        *system.System
	strategies map[string]*strategy.TPUStrategy
}

func newWorld(t *testing.T) *world {
	return &world{t: t, strategies: map[string]*strategy.TPUStrategy{}}
}

// need opens the devices. If the plugin is missing, the case is skipped, or fails if plugins are
// required.
func (w *world) need(c *caseRun) {
	if w.sys != nil {
		return
	}
	c.skipped = true
	plugintest.Path(c.T, "cpu")
	c.skipped = false
	w.sys = plugintest.System(w.t, maxDevices)
}

// maxDevices is the number of devices. It is enough for 16 replicas, or for 8 replicas with 2
// logical devices each.
const maxDevices = 16

// get returns a strategy with the given semantics, replicas and logical devices. For different tags
// it returns different strategies of the same kind.
func (w *world) get(c *caseRun, semantics strategy.Semantics, replicas, logicalDevices int,
	tag string) *strategy.TPUStrategy {
	key := fmt.Sprint(semantics, replicas, logicalDevices, tag)
	s, ok := w.strategies[key]
	if !ok {
		s = strategytest.On(w.t, w.sys, strategy.Options{Replicas: replicas, LogicalDevices: logicalDevices,
			Semantics: semantics})
		w.strategies[key] = s
	}
	return s
}

// env is the environment of a case.
type env struct {
	w         *world
	ctx       context.Context
	s         *strategy.TPUStrategy
	e         *eager.Extended
	n, p      int
	semantics strategy.Semantics
}

var (
	countText = regexp.MustCompile(`(\d+)\s*$`)
	// strategyText matches the name of a strategy: its kind, its number of replicas or its table of
	// replicas and logical devices, and optionally the strategy in whose scope it is used.
	strategyText = regexp.MustCompile(
		`^(default|one-device|mirrored|tpu-host|tpu|-)(?:-(\d+)| 2x2(?: spmd)?)?(?: in [\w-]+)?$`)
)

// envOf returns the environment for the name of a strategy, such as mirrored-2.
func (w *world) envOf(c *caseRun, name string, p int) *env {
	w.need(c)
	v := &env{w: w, ctx: context.Background(), p: p, n: 2, semantics: strategy.TensorFlowTPU}
	m := strategyText.FindStringSubmatch(name)
	if m == nil {
		c.unmapped("strategy %q", name)
	}
	switch kind := m[1]; {
	case kind == "default":
		v.n = 1
	case kind == "one-device":
		v.n, v.semantics = 1, strategy.TensorFlowMirrored
	case kind == "mirrored":
		v.semantics = strategy.TensorFlowMirrored
	}
	if m[2] != "" {
		v.n, _ = strconv.Atoi(m[2])
	}
	c.replicas = v.n
	v.s = w.get(c, v.semantics, v.n, p, "")
	v.e = eager.Of(v.s)
	return v
}

// other returns another strategy with the same number of replicas.
func (v *env) other(c *caseRun) *strategy.TPUStrategy {
	return v.w.get(c, v.semantics, v.n, 1, "other")
}

// scope returns the context of the strategy's scope.
func (v *env) scope(c *caseRun) context.Context {
	ctx, err := eager.Of(v.s).Scope(v.ctx)
	require.NoError(c, err)
	return ctx
}

// variable creates a variable that is closed when the case ends. If it can be split over the
// logical devices, it is annotated so.
func (v *env) variable(c *caseRun, initial any, o strategy.VariableOptions) *strategy.Variable {
	if t, ok := initial.(*tensors.Tensor); ok && v.p > 1 && t.Shape().Rank() == 1 && t.Size()%v.p == 0 {
		o.Annotation = logical.SplitInto(v.p)
	}
	x, err := v.s.NewVariable(v.ctx, initial, o)
	require.NoError(c, err)
	c.Cleanup(func() { _ = x.Close() })
	return x
}

// setComponents sets each component to its own value.
func (v *env) setComponents(c *caseRun, x *strategy.Variable, values []*tensors.Tensor) {
	_, err := v.e.UpdateEach(v.ctx, x, func(u *eager.UpdateContext, _ ...any) (any, error) {
		return u.Assign(values[u.ReplicaID()])
	})
	require.NoError(c, err)
}

func (v *env) components(c *caseRun, x *strategy.Variable) []any {
	return c.show(x).(distributed).values
}

// dtypeOf returns the dtype with the given name or, without a name, the dtype that the notation of
// the numbers implies.
func dtypeOf(name string, x any) dtypes.DType {
	if name != "" {
		d, err := dtypes.DTypeString(strings.ToUpper(name[:1]) + name[1:])
		if err == nil {
			return d
		}
	}
	if isInt(x) {
		return dtypes.Int32
	}
	if isBool(x) {
		return dtypes.Bool
	}
	return dtypes.Float32
}

func isBool(x any) bool {
	if list, ok := x.([]any); ok {
		return len(list) > 0 && isBool(list[0])
	}
	_, ok := x.(bool)
	return ok
}

func isInt(x any) bool {
	switch x := x.(type) {
	case json.Number:
		return !strings.ContainsAny(x.String(), ".eE")
	case []any:
		for _, y := range x {
			if !isInt(y) {
				return false
			}
		}
		return len(x) > 0
	case int:
		return true
	}
	return false
}

// flatten returns the numbers and the dimensions of a nested list.
func flatten(x any) (flat []float64, dims []int) {
	switch x := x.(type) {
	case []any:
		dims = []int{len(x)}
		for i, y := range x {
			f, d := flatten(y)
			flat = append(flat, f...)
			if i == 0 {
				dims = append(dims, d...)
			}
		}
	case json.Number:
		f, _ := x.Float64()
		flat = []float64{f}
	case float64:
		flat = []float64{x}
	case int:
		flat = []float64{float64(x)}
	case bool:
		flat = []float64{0}
		if x {
			flat[0] = 1
		}
	}
	return flat, dims
}

// tensor converts nested lists of numbers to a tensor.
func tensor(c *caseRun, x any, dtype dtypes.DType) *tensors.Tensor {
	flat, dims := flatten(x)
	t := tensors.FromShape(shapes.Make(dtype, dims...))
	if len(flat) == 0 {
		return t
	}
	cast := dtype
	if dtype == dtypes.Bool { // same number of bytes
		cast = dtypes.Uint8
	}
	made, err := tensors.FromAnyValue(shapes.CastAsDType(flat, cast))
	require.NoError(c, err)
	require.NoError(c, made.ConstBytes(func(from []byte) {
		require.NoError(c, t.MutableBytes(func(to []byte) { copy(to, from) }))
	}))
	return t
}

// tensorsOf converts the replicas' values to tensors. An empty value receives the rank of the
// others.
func tensorsOf(c *caseRun, values []any, dtype string) []*tensors.Tensor {
	d := dtypeOf(dtype, values)
	var like []int
	for _, v := range values {
		if _, dims := flatten(v); len(dims) > len(like) {
			like = dims
		}
	}
	all := make([]*tensors.Tensor, len(values))
	for r, v := range values {
		all[r] = tensor(c, v, d)
		if all[r].Size() == 0 && len(like) > 1 {
			all[r] = tensors.FromShape(shapes.Make(d, append([]int{0}, like[1:]...)...))
		}
	}
	return all
}

// perReplica copies the replicas' values to the devices.
func (v *env) perReplica(c *caseRun, values []any, dtype string) *strategy.PerReplica {
	all := tensorsOf(c, values, dtype)
	list := make([]any, len(all))
	for r := range all {
		list[r] = all[r]
	}
	x, err := v.s.PerReplica(v.ctx, list, logical.Annotation{})
	if err != nil { // TensorFlow reports this error when the value is used
		c.refused = failed(err)
		panic(refused{})
	}
	return x
}
