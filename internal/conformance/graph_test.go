package conformance

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/gomlx/core/graph"
	"github.com/stretchr/testify/require"

	"tpustrategy/logical"
	"tpustrategy/strategy"
	"tpustrategy/tpu"
)

// graphGolden is a step as TensorFlow traced it for TPUs.
type graphGolden struct {
	Name           string
	Replicas       int `json:"num_replicas"`
	LogicalDevices int `json:"num_logical_devices"`
	Metadata       []struct {
		Replicas   int   `json:"num_replicas"`
		Cores      int   `json:"num_cores_per_replica"`
		Assignment []int `json:"device_assignment"`
	}
	Counts map[string]int `json:"op_counts"`
	Ops    []struct {
		Op       string
		Sharding *struct {
			Type    string
			Dims    []int
			Devices []int
		}
	}
	FnCalls *int `json:"fn_calls"`
	Error   *struct{ Type string }
}

// traced is our step of a case.
type traced struct {
	step strategy.StepFunc
	args []any
	// writes is set if the step writes a variable.
	variable *strategy.Variable
	calls    *int
	ragged   bool // arguments are padded
}

func runGraphs(t *testing.T, s *tally, data []byte, w *world) {
	var all struct{ Cases []json.RawMessage }
	require.NoError(t, json.Unmarshal(data, &all))
	for _, raw := range all.Cases {
		var g graphGolden
		require.NoError(t, json.Unmarshal(raw, &g))
		s.run(t, "tpu_graph", "graph", g.Name, fmt.Sprintf("%dx%d", g.Replicas, g.LogicalDevices), func(c *caseRun) { graphCase(c, g, w) })
	}
}

func graphCase(c *caseRun, g graphGolden, w *world) {
	w.need(c)
	v := &env{w: w, ctx: w.t.Context(), n: g.Replicas, p: g.LogicalDevices, semantics: strategy.TensorFlowTPU}
	v.s = w.get(v.semantics, v.n, v.p, "")
	v.e = v.s.Extended()
	x := v.stepOf(c, g)
	f := v.s.Function(x.step, strategy.FunctionOptions{PadRagged: x.ragged})
	compiled, err := f.Compiled(v.ctx, x.args...)
	if g.Error != nil {
		require.Error(c, err)
		require.True(c, sameKind(g.Error.Type, strategy.KindOf(err).String()), "TensorFlow has a %s, ours is %s: %v", g.Error.Type, strategy.KindOf(err), err)
		return
	}
	require.NoError(c, err)
	program := string(compiled.Module.Text)
	count := func(op string) int { return strings.Count(program, op) }

	// One collective for each of TensorFlow's, of whichever kind; all-to-alls, of
	// which it may need two to move one value, are one.
	want := g.Counts["CrossReplicaSum"]
	if g.Counts["AllToAll"] > 0 {
		want++
	}
	if v.n == 1 {
		want = 0
	}
	sums := count(`"stablehlo.all_reduce"(`)
	require.Equal(c, want, sums+count(`"stablehlo.all_gather"(`)+count(`"stablehlo.all_to_all"(`)+count(`"stablehlo.reduce_scatter"(`)+count("collective"), "collectives")
	if g.Counts["CrossReplicaSum"] > 0 && !strings.Contains(g.Name, "all_gather") && v.n > 1 {
		require.Equal(c, g.Counts["CrossReplicaSum"], sums, "all-reduces")
	}
	for i, op := range g.Ops {
		if op.Op == "Mul" && i+1 < len(g.Ops) && g.Ops[i+1].Op == "CrossReplicaSum" && v.n > 1 {
			require.Less(c, strings.Index(program, "stablehlo.multiply"), strings.Index(program, `"stablehlo.all_reduce"(`), "it is scaled before it is summed")
		}
		if op.Sharding != nil {
			checkAnnotation(c, program, v.p, op.Sharding.Type, op.Sharding.Dims)
		}
	}
	// A write gives the variable's memory to its new value.
	writes := 0
	for op, n := range g.Counts {
		if strings.HasPrefix(op, "Assign") || strings.HasPrefix(op, "ResourceScatter") {
			writes += n
		}
	}
	if x.variable != nil {
		require.Equal(c, writes > 0, count("tf.aliasing_output") == 1, "donation")
	}
	if g.FnCalls != nil {
		require.Equal(c, *g.FnCalls, *x.calls, "traces")
	}
	for _, m := range g.Metadata {
		require.Equal(c, m.Replicas, v.n)
		require.Equal(c, m.Cores, v.p)
		require.Contains(c, program, fmt.Sprintf("mhlo.num_partitions = %d", v.n*v.p))
		if len(m.Assignment) > 0 {
			checkAssignmentOf(c, m.Assignment, v.n, v.p)
		}
	}
	// And the step runs.
	if len(x.args) > 0 || x.variable != nil {
		_, err = f.Run(v.ctx, x.args...)
		require.NoError(c, err)
	}
}

// checkAssignmentOf compares the recorded cores with the assignment that is built
// for them on the smallest slice that has them.
func checkAssignmentOf(c *caseRun, flat []int, replicas, perReplica int) {
	var mesh [4]int
	for i, x := range flat {
		mesh[i%4] = max(mesh[i%4], x+1)
	}
	devices := mesh[0] * mesh[1] * mesh[2] * mesh[3]
	topology, err := tpu.LogicalTopology(tpu.LogicalOptions{Devices: devices, MeshShape: mesh[:]})
	require.NoError(c, err)
	shape, rest := []int{1, 1, 1, 1}, perReplica
	for axis := 3; axis >= 0 && rest > 1; axis-- {
		for shape[axis] < mesh[axis] && rest > 1 {
			shape[axis]++
			for rest%shape[axis] != 0 {
				shape[axis]++
			}
		}
		rest /= shape[axis]
	}
	// All cores of a replica: more axes than the last may be taken.
	if perReplica == devices {
		shape = mesh[:]
	}
	a, err := tpu.BuildDeviceAssignment(topology, tpu.AssignmentOptions{ComputationShape: shape, Replicas: replicas})
	require.NoError(c, err)
	var got []int
	for _, replica := range a.CoreAssignment() {
		for _, core := range replica {
			got = append(got, core[:]...)
		}
	}
	require.Equal(c, flat, got, "device assignment")
}

// checkAnnotation looks for an annotation in the program.
func checkAnnotation(c *caseRun, program string, devices int, kind string, dims []int) {
	switch kind {
	case "OTHER":
		constraint := regexp.MustCompile(`sdy\.sharding_constraint %\w+ <@mesh, \[(.*?)\]>`).FindStringSubmatch(program)
		require.NotNil(c, constraint, "a constraint")
		parts := strings.Split(constraint[1], "}, {")
		require.Len(c, parts, len(dims), constraint[0])
		for d, n := range dims {
			if n > 1 {
				require.Contains(c, parts[d], "logical", "dimension %d is split", d)
			} else {
				require.NotContains(c, parts[d], "logical", "dimension %d is whole", d)
			}
		}
	case "REPLICATED":
		require.Contains(c, program, "sdy.sharding_constraint")
	case "MAXIMAL":
		if devices > 1 {
			require.Contains(c, program, "%assigned_", "the copies of all logical devices, of which one is used")
		}
	default:
		c.unmapped("sharding of type %s", kind)
	}
}

var (
	writeText   = regexp.MustCompile(`^(assign|assign_add|assign_sub) (?:of (.+?) )?on a (mirrored|ON_READ) variable, aggregation (\w+)(?:, (.*))?$`)
	insideText  = regexp.MustCompile(`^(assign|assign_add|assign_sub) of (tf\.constant\(([\d.]+)\).*?|.*?), (mirrored|ON_READ) variable, aggregation (\w+)$`)
	readText    = regexp.MustCompile(`^read in run: (mirrored|ON_READ) variable, aggregation (\w+)`)
	scatterStep = regexp.MustCompile(`^(scatter_\w+) in run, aggregation (\w+)`)
	splitText   = regexp.MustCompile(`^split_to_logical_devices \[([\d, ]*)\]`)
	assignText  = regexp.MustCompile(`^assign_to_logical_device (\d+)`)
	logicalText = regexp.MustCompile(`logical_device\((\d+)\)`)
	literalText = regexp.MustCompile(`(-?[\d.]+)$`)
)

// stepOf writes the step that a case's name describes.
func (v *env) stepOf(c *caseRun, g graphGolden) traced {
	name := g.Name
	calls := 0
	plain := func(shape ...int) []any { // a value of each replica
		n := 1
		for _, d := range shape {
			n *= d
		}
		list := make([]any, v.n)
		for r := range list {
			flat := make([]any, n)
			for i := range flat {
				flat[i] = json.Number(fmt.Sprintf("%d.0", r))
			}
			list[r] = flat
			if len(shape) == 0 {
				list[r] = flat[0]
			}
		}
		return []any{v.perReplica(c, list, "float32")}
	}
	unary := func(f func(rc *strategy.ReplicaContext, x *graph.Node) *graph.Node) strategy.StepFunc {
		return func(rc *strategy.ReplicaContext, in []*graph.Node) []*graph.Node {
			calls++
			return []*graph.Node{f(rc, in[0])}
		}
	}
	step := func(f func(rc *strategy.ReplicaContext, x *graph.Node) *graph.Node, shape ...int) traced {
		return traced{step: unary(f), args: plain(shape...), calls: &calls}
	}
	addOne := func(_ *strategy.ReplicaContext, x *graph.Node) *graph.Node { return graph.AddScalar(x, 1) }
	integers := func(d string) []any {
		list := make([]any, v.n)
		for r := range list {
			list[r] = []any{json.Number(strconv.Itoa(r)), json.Number("1")}
		}
		return []any{v.perReplica(c, list, d)}
	}
	write := func(op, class, aggregation string, value func(rc *strategy.ReplicaContext) any) traced {
		o := strategy.VariableOptions{Aggregation: aggregations[aggregation], LocalWrites: class == "mirrored" && aggregation == "NONE"}
		if class == "ON_READ" {
			o.Synchronization = strategy.OnRead
		}
		x := v.variable(c, float32(1), o)
		return traced{variable: x, calls: &calls, step: func(rc *strategy.ReplicaContext, _ []*graph.Node) []*graph.Node {
			y := value(rc)
			switch op {
			case "assign":
				return []*graph.Node{rc.Assign(x, y)}
			case "assign_add":
				return []*graph.Node{rc.AssignAdd(x, y)}
			}
			return []*graph.Node{rc.AssignSub(x, y)}
		}}
	}
	ownValue := func(rc *strategy.ReplicaContext) any {
		return graph.AddScalar(graph.ConvertDType(rc.ReplicaIDInSyncGroup(), dtypes.Float32), 1)
	}
	valueOf := func(text string) func(rc *strategy.ReplicaContext) any {
		if m := regexp.MustCompile(`tf\.constant\(([\d.]+)\)`).FindStringSubmatch(text); m != nil {
			return func(rc *strategy.ReplicaContext) any {
				return graph.Const(rc.Graph(), float32(evaluate(c, m[1], 0).(float64)))
			}
		}
		if m := literalText.FindStringSubmatch(text); m != nil && strings.Contains(text, "python") {
			return func(*strategy.ReplicaContext) any { return evaluate(c, m[1], 0).(float64) }
		}
		if text == "" || strings.Contains(text, "tensor") {
			return ownValue
		}
		c.unmapped("value %q", text)
		return nil
	}
	switch {
	case writeText.MatchString(name):
		m := writeText.FindStringSubmatch(name)
		return write(m[1], m[3], m[4], valueOf(m[2]))
	case insideText.MatchString(name):
		m := insideText.FindStringSubmatch(name)
		return write(m[1], m[4], m[5], valueOf(m[2]))
	case readText.MatchString(name):
		m := readText.FindStringSubmatch(name)
		x := write("assign", m[1], m[2], ownValue)
		x.step = func(rc *strategy.ReplicaContext, _ []*graph.Node) []*graph.Node {
			return []*graph.Node{graph.AddScalar(rc.Read(x.variable), 1)}
		}
		return x
	case scatterStep.MatchString(name):
		m := scatterStep.FindStringSubmatch(name)
		a := aggregations[m[2]]
		x := v.variable(c, []float32{1, 1, 1}, strategy.VariableOptions{Aggregation: a, LocalWrites: a == strategy.AggregateNone})
		for op := strategy.ScatterAdd; op <= strategy.ScatterMax; op++ {
			if op.String() == m[1] {
				return traced{variable: x, calls: &calls, step: func(rc *strategy.ReplicaContext, _ []*graph.Node) []*graph.Node {
					y := rc.Scatter(op, x, graph.Const(rc.Graph(), []int32{1}), graph.Const(rc.Graph(), []float32{5}))
					return []*graph.Node{y}
				}}
			}
		}
	case splitText.MatchString(name):
		var parts []int
		shape := []int{}
		for _, f := range strings.Split(splitText.FindStringSubmatch(name)[1], ",") {
			n, _ := strconv.Atoi(strings.TrimSpace(f))
			parts, shape = append(parts, n), append(shape, 4*n)
		}
		if len(shape) > 1 {
			c.unmapped("a split of %d dimensions", len(shape))
		}
		return step(func(_ *strategy.ReplicaContext, x *graph.Node) *graph.Node {
			return graph.AddScalar(logical.Split(x, parts...), 1)
		}, shape...)
	case strings.HasPrefix(name, "replicate_to_logical_devices"):
		return step(func(_ *strategy.ReplicaContext, x *graph.Node) *graph.Node {
			return graph.AddScalar(logical.Replicate(x), 1)
		}, 4)
	case assignText.MatchString(name):
		k, _ := strconv.Atoi(assignText.FindStringSubmatch(name)[1])
		if strings.Contains(strings.ToLower(name), "spmd") && g.Error != nil {
			c.skip(reasonAssignSPMD)
		}
		return step(func(_ *strategy.ReplicaContext, x *graph.Node) *graph.Node {
			return graph.AddScalar(logical.Assign(x, k), 1)
		}, 4)
	case strings.HasPrefix(name, "all_reduce"):
		op := strategy.Sum
		if strings.Contains(name, "MEAN") {
			op = strategy.Mean
		}
		f := func(rc *strategy.ReplicaContext, x *graph.Node) *graph.Node { return rc.AllReduce(op, x) }
		for _, d := range []string{"int64", "int32", "uint8", "int16"} {
			if strings.Contains(name, d) {
				return traced{step: unary(f), args: integers(d), calls: &calls}
			}
		}
		if strings.Contains(name, "MAX") || strings.Contains(name, "other op") {
			return step(func(rc *strategy.ReplicaContext, x *graph.Node) *graph.Node { return rc.AllReduce(7, x) })
		}
		return step(f)
	case strings.HasPrefix(name, "all_gather"):
		f := func(rc *strategy.ReplicaContext, x *graph.Node) *graph.Node { return rc.AllGather(x, 0) }
		if strings.Contains(name, "int64") {
			return traced{step: unary(f), args: integers("int64"), calls: &calls}
		}
		if strings.Contains(name, "scalar") || strings.Contains(name, "rank 0") {
			return step(f)
		}
		return step(f, 4)
	case strings.HasPrefix(name, "int64 SUM in run"):
		x := v.variable(c, int64(1), strategy.VariableOptions{Aggregation: strategy.AggregateSum})
		return traced{variable: x, calls: &calls, step: func(rc *strategy.ReplicaContext, _ []*graph.Node) []*graph.Node {
			return []*graph.Node{rc.AssignAdd(x, graph.ConvertDType(rc.ReplicaIDInSyncGroup(), dtypes.Int64))}
		}}
	case strings.Contains(name, "ONE symbolic tensor"), strings.Contains(name, "does not sum across TPU replicas"):
		c.skip(reasonMergeTrace)
	case strings.Contains(name, "inside merge_call"):
		return step(func(rc *strategy.ReplicaContext, x *graph.Node) *graph.Node {
			return rc.MergeCall(func(mc *strategy.MergeContext, args ...*strategy.Merged) []*strategy.Merged {
				op := strategy.Sum
				if strings.Contains(name, "MEAN") {
					op = strategy.Mean
				}
				return []*strategy.Merged{mc.Reduce(op, args[0])}
			}, x)[0]
		})
	case name == "scope inside run":
		return step(func(rc *strategy.ReplicaContext, x *graph.Node) *graph.Node {
			if _, err := v.s.Scope(rc.Context()); err != nil {
				panic(err)
			}
			return x
		})
	case name == "run inside run":
		inner := v.s.Function(unary(addOne), strategy.FunctionOptions{})
		return step(func(rc *strategy.ReplicaContext, x *graph.Node) *graph.Node {
			if _, err := v.s.Run(rc.Context(), inner, float32(1)); err != nil {
				panic(err)
			}
			return x
		})
	case name == "reduce inside run":
		value := plain()[0].(*strategy.PerReplica)
		return step(func(rc *strategy.ReplicaContext, x *graph.Node) *graph.Node {
			if _, err := v.s.Reduce(rc.Context(), strategy.Sum, value); err != nil {
				panic(err)
			}
			return x
		})
	case strings.Contains(name, "broadcast_to"):
		return step(func(rc *strategy.ReplicaContext, x *graph.Node) *graph.Node { return rc.Broadcast(x) })
	case strings.HasPrefix(name, "plain run"), strings.HasPrefix(name, "run with"), strings.HasPrefix(name, "fn is traced once"),
		strings.HasPrefix(name, "one replica"), strings.HasPrefix(name, "replica id"), strings.HasPrefix(name, "PerReplica"), strings.Contains(name, "args"), strings.Contains(name, "replica_id"):
		return step(addOne, 4)
	case logicalText.MatchString(name):
		k, _ := strconv.Atoi(logicalText.FindStringSubmatch(name)[1])
		return step(func(rc *strategy.ReplicaContext, x *graph.Node) *graph.Node {
			return logical.On(k, x, func(x *graph.Node) *graph.Node { return addOne(rc, x) })
		}, 4)
	case strings.HasPrefix(name, "input with unknown rank") || strings.Contains(name, "unknown rank"):
		c.skip(reasonStaticRank)
	case strings.HasPrefix(name, "input with unknown batch"):
		if strings.Contains(name, "=False") {
			return step(addOne, 4)
		}
		// The last batches are shorter: they are padded, and their real sizes go with
		// them.
		list := make([]any, v.n)
		for r := range list {
			list[r] = make([]any, 4-r%3)
			for i := range list[r].([]any) {
				list[r].([]any)[i] = json.Number("1.0")
			}
		}
		return traced{ragged: true, calls: &calls, args: []any{v.perReplica(c, list, "float32")}, step: unary(func(rc *strategy.ReplicaContext, x *graph.Node) *graph.Node {
			return graph.ReduceAllSum(graph.Where(rc.RealElements(0), x, graph.ZerosLike(x)))
		})}
	}
	c.unmapped("step %q", name)
	return traced{}
}
