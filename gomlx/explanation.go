package gomlx

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"unicode"

	"github.com/gomlx/compute/shapes"

	"github.com/tpustrategy/tpustrategy/internal/units"
	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/lowering/spmd"
	"github.com/tpustrategy/tpustrategy/report"
)

// Explanation describes how a program is sharded over the devices, and why. It is plain data.
type Explanation struct {
	// Program is the name of the program, and Mesh its mesh, such as replica=4,logical=2.
	Program string
	Mesh    string
	// Parameters and Results are the parameters and results of the program, in order.
	Parameters, Results []TensorInfo
	// Rules contains the rules that match a parameter, by their indices.
	Rules map[int]string
	// IdleAxes are the axes of size 2 or more over which no parameter or result is sharded: the
	// devices along such an axis do the same work.
	IdleAxes []string
	// Report contains the memory, the collectives and the cost of the compiled program. It is nil
	// if the runtime does not provide them.
	Report *report.Report
}

// TensorInfo is a parameter or a result of a program.
type TensorInfo struct {
	// Name is the path of a variable, or GoMLX's name of the parameter. A result has the name of
	// the variable that it updates, or none.
	Name string
	// Variable is true for a variable, and false for data.
	Variable bool
	DType    string
	// Shape is the global shape, and Shard the shape of the shard on one device.
	Shape, Shard []int
	// Spec is the sharding of the tensor over the mesh, such as replica,-; see package sharding.
	Spec string
	// Reason is the reason for the placement. UnshardedReason is the reason why a dimension is not
	// sharded although that was requested, or empty.
	Reason, UnshardedReason string
	// Donated is true if a result reuses the memory of the tensor.
	Donated bool
}

// newExplanation returns the explanation of a program. placements has one element per argument.
func newExplanation(name string, m *spmd.Module, placements []logical.ExplainedSpec, rules logical.Rules) *Explanation {
	e := &Explanation{Program: name, Mesh: m.Mesh.String(), Rules: map[int]string{}}
	for _, p := range placements {
		for _, i := range p.Rules {
			e.Rules[i] = rules[i].String()
		}
	}
	used := map[string]bool{}
	add := func(dst *[]TensorInfo, p spmd.ShardedTensor, placement logical.ExplainedSpec) {
		for _, axis := range p.Spec.UsedAxes() {
			used[axis] = true
		}
		*dst = append(*dst, TensorInfo{
			Name: p.Name, Variable: isVariable(p.Name), DType: p.DType.String(), Shape: slices.Clone(p.GlobalDims),
			Shard: slices.Clone(p.ShardDims),
			Spec:  p.Spec.String(), Reason: placement.RuleText, UnshardedReason: placement.UnsplitReason, Donated: p.Donated,
		})
	}
	for i, a := range m.Arguments {
		add(&e.Parameters, a, placements[i])
	}
	for _, r := range m.Results {
		add(&e.Results, r, logical.ExplainedSpec{})
	}
	for _, axis := range m.Mesh.Axes() {
		if axis.Size > 1 && !used[axis.Name] {
			e.IdleAxes = append(e.IdleAxes, axis.Name)
		}
	}
	return e
}

// WriteText writes the explanation as readable text. The text is deterministic.
func (e *Explanation) WriteText(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "program %q on %s\n", e.Program, e.Mesh)
	e.writeParameters(&b)
	for _, i := range slices.Sorted(maps.Keys(e.Rules)) {
		fmt.Fprintf(&b, "  rule %d: %s\n", i, e.Rules[i])
	}
	e.writeResults(&b)
	e.writeUnsharded(&b)
	e.writeIdleAxes(&b)
	if e.Report != nil {
		e.writeReport(&b)
	}
	_, err := io.WriteString(w, strings.Map(func(r rune) rune {
		if unicode.IsControl(r) && r != '\n' {
			return unicode.ReplacementChar
		}
		return r
	}, b.String()))
	return err
}

// writeParameters writes a line for each parameter. Optimizer state with the same sharding as its
// variable is counted in the variable's line.
func (e *Explanation) writeParameters(b *strings.Builder) {
	if len(e.Parameters) == 0 {
		b.WriteString("  it has no parameters\n")
		return
	}
	spec, state := map[string]string{}, map[string]int{}
	for _, p := range e.Parameters {
		spec[p.Name] = p.Spec + fmt.Sprint(p.Shape)
	}
	follows := func(p TensorInfo) (string, bool) {
		variable := logical.OwnerOfState(p.Name, nil)
		return variable, variable != "" && spec[variable] == p.Spec+fmt.Sprint(p.Shape)
	}
	for _, p := range e.Parameters {
		if variable, ok := follows(p); ok {
			state[variable]++
		}
	}
	t := tabwriter.NewWriter(b, 0, 4, 2, ' ', 0)
	fmt.Fprintln(t, "  parameter\tshape\ton one device\tsplit\twhy")
	for _, p := range e.Parameters {
		if _, ok := follows(p); ok {
			continue
		}
		reason := p.Reason
		if n := state[p.Name]; n > 0 {
			reason += fmt.Sprintf("; with its state (%d)", n)
		}
		fmt.Fprintf(t, "  %s\t%s%v\t%v\t%s\t%s\n", p.Name, p.DType, p.Shape, p.Shard, p.shardingText(), reason)
	}
	_ = t.Flush() // a strings.Builder takes everything
}

func (p TensorInfo) shardingText() string {
	if slices.Equal(p.Shape, p.Shard) {
		return "whole"
	}
	return p.Spec
}

// writeResults writes the number of results, the number of results that reuse the memory of a
// parameter, and the shardings of the results that are not variables.
func (e *Explanation) writeResults(b *strings.Builder) {
	updated := 0
	var others []string
	for _, p := range e.Parameters {
		if p.Donated {
			updated++
		}
	}
	for _, r := range e.Results {
		if !r.Variable {
			others = append(others, fmt.Sprintf("%s%v %s", r.DType, r.Shape, r.shardingText()))
		}
	}
	fmt.Fprintf(b, "  results: %d", len(e.Results))
	if updated > 0 {
		fmt.Fprintf(b, ", of which %d reuse the memory of a parameter", updated)
	}
	if len(others) > 0 {
		b.WriteString("; " + joinFirst(others, 6))
	}
	b.WriteString("\n")
}

func (e *Explanation) writeUnsharded(b *strings.Builder) {
	var lines []string
	for _, p := range e.Parameters {
		if p.UnshardedReason != "" {
			lines = append(lines, fmt.Sprintf("    %s %v: %s\n", p.Name, p.Shape, p.UnshardedReason))
		}
	}
	if len(lines) > 0 {
		b.WriteString("  not sharded as requested:\n" + strings.Join(lines, ""))
	}
}

// writeIdleAxes lists the axes whose devices do the same work, with suggestions.
func (e *Explanation) writeIdleAxes(b *strings.Builder) {
	data, variables := false, false
	for _, p := range e.Parameters {
		data, variables = data || !p.Variable, variables || p.Variable
	}
	for _, axis := range e.IdleAxes {
		text := fmt.Sprintf("the devices of axis %s do the same work: nothing is split over it", axis)
		switch {
		case axis != logical.ReplicaAxis && variables && data:
			text += "; give rules=megatron or rules=FILE.json, which split variables over it, or leave the axis out"
		case axis == logical.ReplicaAxis && data:
			text += "; use batches whose dimension 0 is divisible by the number of replicas"
		case !data:
			text += ", because the program has no data"
		}
		b.WriteString("  " + text + "\n")
	}
}

func (e *Explanation) writeReport(b *strings.Builder) {
	m := e.Report.Memory
	fmt.Fprintf(b, "  memory of one device: arguments %s, results %s (of which %s in the place of arguments), "+
		"temporaries %s, code %s; %s in all\n",
		units.Bytes(m.Arguments), units.Bytes(m.Outputs), units.Bytes(m.Aliased), units.Bytes(m.Temporaries),
		units.Bytes(m.Code), units.Bytes(m.Total))
	collectives := e.Report.Summary().Collectives
	if len(collectives) == 0 {
		b.WriteString("  collectives: none\n")
		return
	}
	t := tabwriter.NewWriter(b, 0, 4, 2, ' ', 0)
	fmt.Fprintln(t, "  collective\taxis\tdtype\tcount\tbytes")
	for _, c := range collectives {
		fmt.Fprintf(t, "  %s\t%s\t%s\t%d\t%s\n", c.Kind, c.Axis, c.DType, c.Count, units.Bytes(c.Bytes))
	}
	_ = t.Flush()
}

func newReport(name string, m *spmd.Module, in report.Input) (*report.Report, error) {
	in.Step, in.Global = name, true
	replicas, _ := m.Mesh.AxisSize(logical.ReplicaAxis)
	in.Replicas, in.LogicalDevices = replicas, m.Mesh.Size()/max(replicas, 1)
	hasState := map[string]bool{}
	for _, a := range m.Arguments {
		if variable := logical.OwnerOfState(a.Name, nil); variable != "" {
			hasState[variable] = true
		}
	}
	for _, a := range m.Arguments {
		in.Variables = append(in.Variables, isVariable(a.Name))
		// GoMLX does not specify which variables are trained. Count the variables with optimizer
		// state; if there are none, count the float variables that are not scalars.
		if isVariable(a.Name) && logical.OwnerOfState(a.Name, nil) == "" &&
			(hasState[a.Name] || len(hasState) == 0 && a.DType.IsFloat() && len(a.GlobalDims) > 0) {
			in.Parameters += int64(shapes.Make(a.DType, a.GlobalDims...).Size())
		}
	}
	module := *m
	module.Arguments, module.Results = perReplicaTensors(m.Arguments, replicas), perReplicaTensors(m.Results, replicas)
	in.Module = &module
	return report.New(in)
}

// perReplicaTensors converts tensors for a report. The report shows data with the shape of one
// replica, and shardings as annotations.
func perReplicaTensors(tensors []spmd.ShardedTensor, replicas int) []spmd.ShardedTensor {
	out := slices.Clone(tensors)
	for i, p := range out {
		names := make([]string, p.Spec.Rank())
		for dim := range names {
			axes := p.Spec.Dim(dim).Axes
			names[dim] = strings.Join(axes, "+")
			if !isVariable(p.Name) && slices.Contains(axes, logical.ReplicaAxis) {
				out[i].PerReplica, out[i].LocalDims = true, slices.Clone(p.LocalDims)
				out[i].LocalDims[dim] /= replicas
				names[dim] = strings.Join(slices.DeleteFunc(slices.Clone(axes),
					func(axis string) bool { return axis == logical.ReplicaAxis }), "+")
			}
		}
		if !p.Spec.IsReplicated() && strings.Join(names, "") != "" {
			out[i].Annotation = logical.SplitOverAxes(names...)
		}
	}
	return out
}
