package conformance

import (
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/gomlx/gomlx/core/graph"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/strategy/eager"
	"github.com/tpustrategy/tpustrategy/tpu"
)

// graphGolden is a step that TensorFlow traced for TPUs.
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
		Device   string
		Sharding *struct {
			Type    string
			Dims    []int
			Devices []int
		}
	}
	FnCalls  *int `json:"fn_calls"`
	Observed any
	Error    *struct{ Type string }
}

// traced is the step of a case in this module.
type traced struct {
	step strategy.StepFunc
	args []any
	ctx  context.Context
	// variables are the variables that the step reads or writes. err is the error of their
	// creation.
	variables []*strategy.Variable
	err       error
	// cause is the error that the step itself returns.
	cause error
	// gradients reports whether the step computes gradients, whose collectives are not only sums.
	gradients bool
	uncounted bool // the graph has the collectives in functions
	padding   strategy.Padding
	calls     int
	observed  map[string]any
}

func runGraphs(t *testing.T, s *tally, data []byte, w *world) {
	var all struct{ Cases []json.RawMessage }
	require.NoError(t, json.Unmarshal(data, &all))
	for _, raw := range all.Cases {
		var g graphGolden
		require.NoError(t, json.Unmarshal(raw, &g))
		s.run(t, "tpu_graph", "graph", g.Name, fmt.Sprintf("%dx%d", g.Replicas, g.LogicalDevices),
			func(c *caseRun) { graphCase(c, g, w) })
	}
}

func graphCase(c *caseRun, g graphGolden, w *world) {
	w.need(c)
	v := &env{w: w, ctx: w.t.Context(), n: g.Replicas, p: g.LogicalDevices, semantics: strategy.TensorFlowTPU}
	v.s = w.get(c, v.semantics, v.n, v.p, "")
	v.e = eager.Of(v.s)
	x := v.stepOf(c, g)
	if x == nil {
		return
	}
	f := v.s.Function(func(rc *strategy.ReplicaContext, in []*graph.Node) []*graph.Node {
		x.calls++
		return x.step(rc, in)
	}, strategy.FunctionOptions{Padding: x.padding})
	var program string
	err := x.err
	if err == nil {
		var compiled *strategy.CompiledStep
		if compiled, err = f.Compiled(x.ctx, x.args...); err == nil {
			program = string(compiled.Module.Text)
		}
	}
	if err == nil && x.ctx != v.ctx { // only Run checks the context
		_, err = f.Run(x.ctx, x.args...)
	}
	if g.Error != nil {
		require.Error(c, err)
		if x.cause != nil {
			require.ErrorIs(c, err, x.cause, "the user's own error comes through")
			return
		}
		require.True(c, sameTraceError(g.Error.Type, errkind.KindOf(err).String()), "TensorFlow has a %s, ours is %s: %v",
			g.Error.Type, errkind.KindOf(err), err)
		return
	}
	require.NoError(c, err)
	if !x.uncounted {
		checkCollectives(c, g, x, program)
	}
	for _, op := range g.Ops {
		if op.Sharding != nil {
			checkAnnotation(c, program, v.p, op.Sharding.Type, op.Sharding.Dims)
		}
	}
	// A written variable donates its memory to the new value.
	if len(x.variables) > 0 && writes(g) > 0 {
		require.Equal(c, len(x.variables), strings.Count(program, "tf.aliasing_output"), "donation")
	} else {
		require.NotContains(c, program, "tf.aliasing_output")
	}
	if g.FnCalls != nil {
		require.Equal(c, *g.FnCalls, x.calls, "traces")
	}
	if observed, ok := g.Observed.(map[string]any); ok {
		for k, got := range x.observed {
			if want, ok := observed[k]; ok {
				require.Equal(c, want, got, k)
			}
		}
	}
	for _, m := range g.Metadata {
		require.Equal(c, m.Replicas, v.n)
		require.Equal(c, m.Cores, v.p)
		replicas, partitions := 1, v.n*v.p
		if v.p == 1 { // one program per core
			replicas, partitions = v.n, 1
		}
		require.Contains(c, program, fmt.Sprintf("mhlo.num_replicas = %d : i32, mhlo.num_partitions = %d", replicas,
			partitions))
		if len(m.Assignment) > 0 {
			checkAssignmentOf(c, m.Assignment, v.n, v.p)
		}
	}
	out, err := f.Run(x.ctx, x.args...)
	require.NoError(c, err)
	if n := g.Counts["TPUReplicatedOutput"]; n > 0 {
		require.Len(c, out, n, "results")
	}
}

// writes returns the number of writes to variables.
func writes(g graphGolden) int {
	n := 0
	for op, k := range g.Counts {
		if strings.HasPrefix(op, "Assign") || strings.HasPrefix(op, "ResourceScatter") {
			n += k
		}
	}
	return n
}

// checkCollectives checks that the program has one collective, of any kind, for each collective of
// TensorFlow. TensorFlow uses one all-to-all for the value of a write and two for a gather.
func checkCollectives(c *caseRun, g graphGolden, x *traced, program string) {
	count := func(op string) int { return strings.Count(program, op) }
	sums, moves := g.Counts["CrossReplicaSum"], g.Counts["AllToAll"]
	if writes(g) == 0 {
		moves = (moves + 1) / 2
	}
	if g.Replicas == 1 {
		sums, moves = 0, 0
	}
	got := count(`"stablehlo.all_reduce"(`)
	require.Equal(c, sums+moves, got+count(`"stablehlo.all_gather"(`)+count(`"stablehlo.all_to_all"(`)+
		count(`"stablehlo.reduce_scatter"(`)+count("collective"), "collectives")
	if sums == 0 || strings.Contains(g.Name, "gather") || x.gradients {
		return // TensorFlow implements a gather as a sum of masked values
	}
	require.Equal(c, sums, got-moves, "all-reduces")
	for i, op := range g.Ops {
		if op.Op != "CrossReplicaSum" {
			continue
		}
		if i > 0 && g.Ops[i-1].Op == "Mul" {
			require.Less(c, strings.Index(program, "stablehlo.multiply"), strings.Index(program, `"stablehlo.all_reduce"(`),
				"it is scaled before it is summed")
		}
		return
	}
}

// sameTraceError reports whether two kinds of tracing errors match. TensorFlow does not check all
// arguments, so a wrong argument may cause Python's own error.
func sameTraceError(theirs, ours string) bool {
	switch theirs {
	case "IndexError", "ZeroDivisionError", "StagingError", "ValueError", "InvalidArgumentError":
		return ours == "ValueError" || ours == "InvalidArgumentError"
	}
	return sameKind(theirs, ours)
}

// checkAssignmentOf compares the recorded cores with a device assignment for the smallest slice
// that contains them.
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
	// If a replica uses all cores, it may extend over more axes than the last.
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

// checkAnnotation checks that the program contains an annotation.
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
		if devices > 1 { // tensors on one device are unsharded
			require.Contains(c, program, "sdy.sharding_constraint")
		}
	case "MAXIMAL":
		if devices > 1 {
			require.Contains(c, program, "%assigned_", "the copies of all logical devices, of which one is used")
		}
	default:
		c.unmapped("sharding of type %s", kind)
	}
}
