package conformance

import (
	"encoding/json"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/core/tensors"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/strategy/eager"
)

// A case of a traced step has no inputs except its name, which describes the step: the function,
// its operands, dtype, shape, axis and aggregation. The recorded graph contains the number of
// arguments and results.

var (
	dtypeText = regexp.MustCompile(
		`\b(float16|half|bfloat16|float32|float64|double|u?int(?:8|16|32|64)|bool|complex64|complex128)\b`)
	shapeText     = regexp.MustCompile(`(?:shape|tensor of) [\[(]([\d, ]*)[\])]`)
	rankText      = regexp.MustCompile(`\brank[ -]?(\d)`)
	alongText     = regexp.MustCompile(`\baxis[ =]*(-?\d+)`)
	partsText     = regexp.MustCompile(`split\w*\W+\[([-\d, ]*)\]`)
	deviceText    = regexp.MustCompile(`assign_to_logical_device\D*?(-?\d+)`)
	logicalText   = regexp.MustCompile(`logical_device\((-?\d+)\)`)
	reductionText = regexp.MustCompile(`\b(?:SUM|MEAN|MAX|MIN|PROD|CONCAT)\b`)
	otherText     = regexp.MustCompile(
		`\b(?:unknown|invalid|other|unsupported|wrong)\b[a-z_ ]*\b(?:reduction|op|reduce_op|ReduceOp)\b`)
	talkText   = regexp.MustCompile(`(?i)reduc|gather|\bsum|\bmean|all.?to.?all|collective|cross.?replica|broadcast`)
	branchText = regexp.MustCompile(`\b(?:cond|while|while_loop|branch|loop)\b`)
	insideText = regexp.MustCompile(`^(.+?) (?:inside|in) (?:a )?(?:run|replica context)\b`)
)

func numbers(text string) []int {
	list := []int{}
	for _, f := range strings.FieldsFunc(text, func(r rune) bool { return r == ',' || r == ' ' }) {
		n, _ := strconv.Atoi(f)
		list = append(list, n)
	}
	return list
}

// shapeIn returns the shape in a name. The name may contain the dimensions or the rank.
func shapeIn(name string, otherwise ...int) []int {
	switch {
	case shapeText.MatchString(name):
		return numbers(shapeText.FindStringSubmatch(name)[1])
	case rankText.MatchString(name):
		rank, _ := strconv.Atoi(rankText.FindStringSubmatch(name)[1])
		return slices.Repeat([]int{4}, rank)
	case strings.Contains(name, "scalar"):
		return nil
	}
	return otherwise
}

func dtypeIn(name string) dtypes.DType {
	switch d := dtypeText.FindString(name); d {
	case "half":
		return dtypes.Float16
	case "double":
		return dtypes.Float64
	default:
		return dtypeOf(d, json.Number("1.0"))
	}
}

// reductionIn returns the reduction in a name. For a reduction that this module does not have, it
// returns an invalid number.
func reductionIn(name string) strategy.ReduceOp {
	if otherText.MatchString(name) {
		return 7
	}
	for _, find := range []string{name, strings.ToUpper(name)} {
		switch reductionText.FindString(find) {
		case "SUM":
			return strategy.Sum
		case "MEAN":
			return strategy.Mean
		case "":
			continue
		}
		return 7
	}
	return strategy.Sum
}

// argument returns a PerReplica value with the given dtype and shape.
func (v *env) argument(c *caseRun, d dtypes.DType, shape []int) any {
	parts := make([]any, v.n)
	for r := range parts {
		t := tensors.FromShape(shapes.Make(d, shape...))
		if d != dtypes.Bool && !d.IsComplex() { // bool and complex values remain zero
			flat := make([]any, t.Size())
			for i := range flat {
				flat[i] = float64(r + i)
			}
			made := tensor(c, flat, d)
			require.NoError(c, made.ConstBytes(func(from []byte) {
				require.NoError(c, t.MutableBytes(func(to []byte) { copy(to, from) }))
			}))
		}
		parts[r] = t
	}
	x, err := v.s.PerReplica(v.ctx, parts, noAnnotation)
	require.NoError(c, err)
	return x
}

// stepOf returns the step that the name of a case describes.
func (v *env) stepOf(c *caseRun, g graphGolden) *traced {
	name := g.Name
	x := &traced{ctx: v.ctx, observed: map[string]any{}}
	is := func(words ...string) bool {
		return slices.ContainsFunc(words, func(w string) bool { return strings.Contains(name, w) })
	}
	has := func(op string) bool { return g.Counts[op] > 0 }
	branched := branchText.MatchString(name)
	switch {
	case is("IndexedSlices", "sparse", "SparseTensor"):
		c.skip(reasonSparse)
	case branched && is("assign", "scatter") && !is("merge_call"):
		c.skip(reasonWriteBranch)
	case len(g.Metadata) == 0 && g.Error == nil && writes(g) > 0:
		v.across(c, name)
		return nil
	case has("Pad"):
		v.padded(c, x)
	case is("unknown rank", "unknown shape"):
		c.skip(reasonStaticRank)
	case is("raises", "exception"):
		x.cause = errReplica
		x.args = []any{v.argument(c, dtypes.Float32, []int{4})}
		x.step = func(rc *strategy.ReplicaContext, in []*graph.Node) []*graph.Node {
			if is("merge_call") {
				return eager.MergeCall(rc, func(*eager.MergeContext,
					...*eager.MergeValue) []*eager.MergeValue {
					panic(errReplica)
				}, in[0])
			}
			panic(errReplica)
		}
	case is("merge_call", "broadcast_to inside run") && !(is("broadcast_to") && g.Error != nil):
		v.merging(c, g, x)
	case is("variable", "aggregation", "scatter_", "assign_add", "assign_sub") || aggregatedText.MatchString(name) ||
		writes(g) > 0 || has("ReadVariableOp"):
		v.variables(c, g, x)
	case is("all_reduce", "all_gather") || talkText.MatchString(name) && (has("CrossReplicaSum") || has("AllToAll")):
		v.collective(c, g, x)
	case is("logical_device") || has("XlaSharding"):
		v.annotated(c, g, x)
	case is("extended.update") && writes(g) > 0:
		v.mergedWrite(c, g, x)
	case insideText.MatchString(name) && v.inside(c, insideText.FindStringSubmatch(name)[1], x):
	case is("scope of another strategy", "another strategy's scope"):
		v.plain(c, g, x)
		var err error
		x.ctx, err = eager.Of(v.other(c)).Scope(v.ctx)
		require.NoError(c, err)
	case is("local_results inside run", "local_results in run"):
		c.skip(reasonLocal)
	case g.Error == nil:
		v.plain(c, g, x)
		if is("scope") {
			x.ctx = v.scope(c)
		}
	}
	if x.step == nil {
		c.unmapped("step %q", name)
	}
	if branched && !is("merge_call") {
		x.branch(is("while", "loop"))
	}
	return x
}

// branch moves the step into a branch that is taken, or into a loop with one iteration.
// TensorFlow's counts do not include the ops in branches and loops.
func (x *traced) branch(loop bool) {
	step := x.step
	x.uncounted = true
	x.step = func(rc *strategy.ReplicaContext, in []*graph.Node) []*graph.Node {
		g := rc.Graph()
		rc.ReplicaIDInSyncGroup()
		if !loop {
			taken := graph.NewClosure(g, func(*graph.Graph) []*graph.Node { return step(rc, in) })
			other := graph.NewClosure(g, func(*graph.Graph) []*graph.Node { return step(rc, in) })
			return graph.If(graph.Const(g, true), taken, other)
		}
		state := step(rc, in)[:1]
		more := graph.NewClosure(g, func(g *graph.Graph) []*graph.Node {
			count := graph.Parameter(g, "count", shapes.Make(dtypes.Int32))
			graph.Parameter(g, "state", state[0].Shape())
			return []*graph.Node{graph.LessThan(count, graph.Const(g, int32(1)))}
		})
		body := graph.NewClosure(g, func(g *graph.Graph) []*graph.Node {
			count := graph.Parameter(g, "count", shapes.Make(dtypes.Int32))
			return []*graph.Node{graph.AddScalar(count, 1),
				step(rc, []*graph.Node{graph.Parameter(g, "state", state[0].Shape())})[0]}
		})
		return graph.While(more, body, graph.Const(g, int32(0)), state[0])[1:]
	}
}

// plain sets x to a step that uses no functions of the strategy. The step has as many results as
// the recorded graph, and as many arguments except the replica ID.
func (v *env) plain(c *caseRun, g graphGolden, x *traced) {
	computations := max(len(g.Metadata), 1)
	d, shape := dtypeIn(g.Name), shapeIn(g.Name, 4)
	for range g.Counts["TPUReplicatedInput"]/computations - 1 {
		x.args = append(x.args, v.argument(c, d, shape))
	}
	x.step = func(rc *strategy.ReplicaContext, in []*graph.Node) []*graph.Node {
		x.observed["num_replicas_in_sync"] = float64(rc.NumReplicasInSync())
		x.observed["cross"] = eager.InCrossReplicaContext(rc.Context())
		s, ok := eager.FromContext(rc.Context())
		x.observed["same"], x.observed["has_strategy"] = s == v.s, ok
		sum := graph.ConvertDType(rc.ReplicaIDInSyncGroup(), d)
		for _, y := range in {
			sum = graph.Add(y, sum)
		}
		results := []*graph.Node{sum}
		for range g.Counts["TPUReplicatedOutput"] - 1 {
			results = append(results, graph.AddScalar(results[len(results)-1], 1))
		}
		return results
	}
}

// padded sets x to a step whose last batches are shorter. They are padded, and the step uses their
// actual sizes.
func (v *env) padded(c *caseRun, x *traced) {
	parts := make([]any, v.n)
	for r := range parts {
		parts[r] = slices.Repeat([]any{json.Number("1.0")}, 4-r%3)
	}
	x.padding = strategy.MaskPadding
	x.args = []any{v.perReplica(c, parts, "float32")}
	x.step = func(rc *strategy.ReplicaContext, in []*graph.Node) []*graph.Node {
		return []*graph.Node{graph.ReduceAllSum(graph.Where(rc.RealElements(0), in[0], graph.ZerosLike(in[0])))}
	}
}

// collective sets x to a step that calls all_reduce or all_gather for each leaf of a nested
// structure.
func (v *env) collective(c *caseRun, g graphGolden, x *traced) {
	name, d, shape := g.Name, dtypeIn(g.Name), shapeIn(g.Name, 4)
	axis := 0
	if m := alongText.FindStringSubmatch(name); m != nil {
		axis, _ = strconv.Atoi(m[1])
	}
	op := reductionIn(strings.ReplaceAll(name, "all_reduce", ""))
	if op > strategy.Mean && g.Error != nil {
		// TensorFlow's error depends on the type of the reduction.
		g.Error.Type = errkind.AssertionError.String()
	}
	gather := strings.Contains(name, "gather") || g.Counts["AllToAll"] > 0
	call := func(rc *strategy.ReplicaContext, y *graph.Node) *graph.Node {
		if gather {
			return rc.AllGather(y, axis)
		}
		return rc.AllReduce(op, y)
	}
	leaves, times := max(g.Counts["TPUReplicatedOutput"], 1), 1
	x.gradients = strings.Contains(name, "gradient")
	if x.gradients {
		leaves = 1
	}
	if strings.Contains(name, "twice") || strings.Contains(name, "in a row") {
		times = 2
	}
	constant := strings.Contains(name, "python") || strings.Contains(name, "constant")
	id := strings.Contains(name, "replica id") || strings.Contains(name, "replica_id")
	if !constant && !id {
		x.args = []any{v.argument(c, d, shape)}
	}
	x.step = func(rc *strategy.ReplicaContext, in []*graph.Node) []*graph.Node {
		var y *graph.Node
		switch {
		case id:
			y = rc.ReplicaIDInSyncGroup()
		case constant:
			y = graph.Scalar(rc.Graph(), d, 3)
		default:
			y = in[0]
		}
		if x.gradients {
			z := call(rc, graph.Mul(y, y))
			return []*graph.Node{z, graph.Gradient(graph.ReduceAllSum(z), y)[0]}
		}
		var results []*graph.Node
		for range leaves {
			z := y
			for range times {
				z = call(rc, z)
			}
			results = append(results, z)
			if leaves > 1 {
				y = graph.Add(y, y)
			}
		}
		return results
	}
}

// annotated sets x to a step that annotates the placement of a tensor on logical devices.
func (v *env) annotated(c *caseRun, g graphGolden, x *traced) {
	name := g.Name
	lower := strings.ToLower(name)
	shape := []int{4 * v.p}
	annotate := func(y *graph.Node) *graph.Node { return graph.AddScalar(y, 1) }
	var kind string
	var parts, recorded, devices []int
	for _, op := range g.Ops {
		if op.Sharding != nil {
			kind, recorded, devices = op.Sharding.Type, op.Sharding.Dims, op.Sharding.Devices
		}
	}
	for _, k := range []string{"split_to", "replicate_to", "assign_to"} {
		if strings.Contains(name, k) {
			kind = k // if the name has no kind, the graph determines it
		}
	}
	switch kind {
	case "split_to", "OTHER":
		parts = recorded
		switch m := partsText.FindStringSubmatch(name); {
		case m != nil:
			parts = numbers(m[1])
		case parts != nil:
		case strings.Contains(lower, "rank"), strings.Contains(lower, "length"):
			parts = []int{v.p, 1}
		case strings.Contains(lower, "divisible"):
			parts, shape = []int{v.p}, []int{2*v.p + 1}
		default:
			parts = []int{v.p + 1}
		}
		product, other := 1, strings.Contains(lower, "rank") || strings.Contains(lower, "length")
		for _, n := range parts {
			product *= n
		}
		switch {
		case strings.Contains(lower, "divisible"):
		case g.Error != nil && (other || product == v.p && v.p > 1):
			// Only the number of parts can be wrong.
			shape = slices.Repeat([]int{4 * v.p}, len(parts)%2+1)
		default:
			shape = nil
			for _, n := range parts {
				shape = append(shape, 4*max(n, 1))
			}
		}
		annotate = func(y *graph.Node) *graph.Node { return logical.Split(y, parts...) }
	case "replicate_to", "REPLICATED":
		annotate = logical.Replicate
	case "assign_to", "MAXIMAL":
		if strings.Contains(lower, "spmd") && g.Error != nil {
			c.skip(reasonAssignSPMD)
		}
		k := v.p // out of range
		if m := deviceText.FindStringSubmatch(name); m != nil {
			k, _ = strconv.Atoi(m[1])
		} else if len(devices) > 0 {
			k = devices[0]
		}
		annotate = func(y *graph.Node) *graph.Node { return logical.Assign(y, k) }
	default:
		regions := logicalText.FindAllStringSubmatch(name, -1)
		if regions == nil {
			regions = regexp.MustCompile(`logical_device (-?\d+)`).FindAllStringSubmatch(name, -1)
		}
		if regions == nil {
			c.unmapped("step %q", name)
		}
		annotate = func(y *graph.Node) *graph.Node {
			for _, m := range regions {
				k, _ := strconv.Atoi(m[1])
				y = logical.OnDevice(k, y, func(y *graph.Node) *graph.Node { return graph.AddScalar(y, 1) })
			}
			return y
		}
		if strings.Contains(regions[0][1], "-") && g.Error == nil {
			c.skip(reasonNegative)
		}
	}
	x.args = []any{v.argument(c, dtypeIn(name), shapeIn(strings.ReplaceAll(name, "split_to", ""), shape...))}
	x.step = func(_ *strategy.ReplicaContext, in []*graph.Node) []*graph.Node {
		return []*graph.Node{graph.AddScalar(annotate(in[0]), 1)}
	}
}
