package stepfile

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gomlx/compute/dtypes"

	"github.com/tpustrategy/tpustrategy/internal/engine/saved"
	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/lowering/ragged"
	"github.com/tpustrategy/tpustrategy/lowering/spmd"
	"github.com/tpustrategy/tpustrategy/sharding"
	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/tpu"
)

// header says what a step is and what it was compiled for. Its JSON is the form of the file.
type header struct {
	Version int    `json:"version"`
	Step    string `json:"step"`
	target
	Axes []sharding.Axis `json:"axes"`
	// LogicalAxes are those of a replica, where they have names; Axes has their pieces.
	LogicalAxes []sharding.Axis `json:"logical_axes,omitempty"`
	Arguments   []tensor        `json:"arguments"`
	Results     []tensor        `json:"results"`
	Updates     []int           `json:"updates,omitempty"`
	// Steps is the number of steps of a loop, 0 for a step without one.
	Steps int `json:"steps,omitempty"`
	// Replicas are the program's, of one partition each; 0 is one replica of all devices.
	Replicas   int  `json:"replicas,omitempty"`
	SplitBatch bool `json:"split_batch,omitempty"`
	LocalBatch bool `json:"local_batch,omitempty"`
	PadRagged  bool `json:"pad_ragged,omitempty"`
	Keep       bool `json:"keep_padding,omitempty"`
	Training   bool `json:"training,omitempty"`
	Mirrored   bool `json:"mirrored_results,omitempty"`
	// NonFinite is the training step's train.NonFinite, Gradients the variables that its gradients
	// are for.
	NonFinite int          `json:"non_finite,omitempty"`
	Gradients []string     `json:"gradients,omitempty"`
	Layouts   []annotation `json:"argument_annotations,omitempty"`
	Metrics   *metrics     `json:"metrics,omitempty"`
	// ConstantBytes is the number of bytes of all large constants.
	ConstantBytes uint64 `json:"constant_bytes,omitempty"`
}

// target is a saved.Target. Plugin is the identity of [cache.PluginIdentity].
type target struct {
	Plugin      string              `json:"plugin"`
	Devices     string              `json:"devices"`
	Topology    string              `json:"topology"`
	Mesh        tpu.Coordinates     `json:"mesh"`
	IDs         [][]int             `json:"device_ids"`
	Coordinates [][]tpu.Coordinates `json:"coordinates"`
}

// tensor is a spmd.ShardedTensor.
type tensor struct {
	Name     string `json:"name"`
	Variable bool   `json:"variable,omitempty"`
	// Constant is set for an argument that is a large constant of the step. Variable is set, too.
	Constant bool `json:"constant,omitempty"`
	// Distributed is set for a variable that belongs to no store.
	Distributed *variable `json:"distributed,omitempty"`
	DType       string    `json:"dtype"`
	Local       []int     `json:"local"`
	Global      []int     `json:"global"`
	Shard       []int     `json:"shard"`
	Spec        string    `json:"spec"`
	PerReplica  bool      `json:"per_replica,omitempty"`
	PerStep     bool      `json:"per_step,omitempty"`
	Ragged      bool      `json:"ragged,omitempty"` // an argument whose replicas differ in shape
	// Sizes are, of such an argument's dimensions, the padded size it has, or -1; Cut are the
	// padded dimensions of a result.
	Sizes      []int        `json:"padded_sizes,omitempty"`
	Cut        []ragged.Dim `json:"padded,omitempty"`
	Annotation annotation   `json:"annotation"`
	// Over is set for a tensor of which each replica holds a part.
	Over    *replicaShard `json:"over,omitempty"`
	Donated bool          `json:"donated,omitempty"`
	Result  int           `json:"result,omitempty"`
}

// replicaShard is a spmd.ReplicaShard.
type replicaShard struct {
	Dim  int `json:"dimension"`
	Size int `json:"size"`
}

// annotation is a logical.Annotation.
type annotation struct {
	Kind   string `json:"kind"`
	Device int    `json:"device,omitempty"`
	Parts  []int  `json:"parts,omitempty"`
	// Axes are those of a split by names, for each dimension.
	Axes [][]string `json:"axes,omitempty"`
}

// annotationOut is an annotation as the file has it.
func annotationOut(a logical.Annotation) annotation {
	switch a.Kind() {
	case logical.KindAssign:
		return annotation{Kind: "assign", Device: a.Device()}
	case logical.KindReplicate:
		return annotation{Kind: "replicate"}
	case logical.KindSplit:
		if axes := a.Axes(); axes != nil {
			return annotation{Kind: "over", Axes: axes}
		}
		return annotation{Kind: "split", Parts: a.Parts()}
	}
	return annotation{Kind: "none"}
}

// in is the annotation of a file.
func (a annotation) in() (logical.Annotation, error) {
	switch a.Kind {
	case "none":
		return logical.Annotation{}, nil
	case "assign":
		return logical.AssignTo(a.Device), nil
	case "replicate":
		return logical.Replicated(), nil
	case "split":
		return logical.SplitInto(a.Parts...), nil
	case "over":
		dims := make([]string, len(a.Axes))
		for i, names := range a.Axes {
			dims[i] = strings.Join(names, ",")
		}
		return logical.Over(dims...), nil
	}
	return logical.Annotation{}, fmt.Errorf("annotation %q", a.Kind)
}

// tensorOut is an argument or a result as the file has it.
func tensorOut(p spmd.ShardedTensor) tensor {
	t := tensor{
		Name: p.Name, DType: p.DType.String(), Local: p.Local, Global: p.Global, Shard: p.Shard,
		Spec: p.Spec.Shardy("mesh"), PerReplica: p.PerReplica, PerStep: p.PerStep, Annotation: annotationOut(p.Annotation), Donated: p.Donated, Result: p.Result,
		Constant: p.Constant,
	}
	if p.Over.Is() {
		t.Over = new(replicaShard(p.Over))
	}
	return t
}

// in is the argument or result of a file.
func (t tensor) in() (p spmd.ShardedTensor, err error) {
	p.Name, p.Local, p.Global, p.Shard = t.Name, t.Local, t.Global, t.Shard
	p.PerReplica, p.PerStep, p.Donated, p.Result, p.Constant = t.PerReplica, t.PerStep, t.Donated, t.Result, t.Constant
	if t.Over != nil {
		p.Over = spmd.ReplicaShard(*t.Over)
		if p.Over.Size < 1 || p.Over.Dim < 0 || p.Over.Dim >= len(p.Local) || p.PerReplica {
			return p, fmt.Errorf("tensor %q: %v in parts of %s", t.Name, p.Local, p.Over)
		}
	}
	if p.DType, err = dtypes.DTypeString(t.DType); err != nil {
		return p, fmt.Errorf("tensor %q: dtype %q", t.Name, t.DType)
	}
	if p.Annotation, err = t.Annotation.in(); err != nil {
		return p, fmt.Errorf("tensor %q: %w", t.Name, err)
	}
	if _, p.Spec, err = sharding.ParseShardy(t.Spec); err != nil {
		return p, fmt.Errorf("tensor %q: %w", t.Name, err)
	}
	return p, nil
}

// headerOf is the header of a step.
func headerOf(s *saved.Step) header {
	padding := strategy.Padding(s.Padding)
	h := header{
		Version: version, Step: s.Name, target: target(s.Target), Axes: s.Module.Mesh.Axes(), Updates: s.Updates, Steps: s.Steps,
		SplitBatch: s.SplitBatch, LocalBatch: s.LocalBatch, PadRagged: padding == strategy.MaskPadding, Keep: padding == strategy.KeepPadding, Training: s.Training, Mirrored: s.Mirrored,
		NonFinite: s.Guard.Mode, Gradients: s.Guard.Gradients, Metrics: metricsOut(s.Metrics),
	}
	if s.Module.Partitions == 1 {
		h.Replicas = s.Module.Replicas
	}
	if mesh := s.Module.Logical; mesh.Rank() > 0 && !slices.Equal(mesh.AxisNames(), []string{logical.AxisName}) {
		h.LogicalAxes = mesh.Axes()
	}
	for i, a := range s.Module.Arguments {
		t, argument := tensorOut(a), s.Arguments[i]
		t.Variable, t.Ragged, t.Sizes = argument.Variable, argument.Ragged, argument.Sizes
		if t.Constant {
			h.Version = constantsVersion
			h.ConstantBytes += uint64(len(argument.Constant))
		}
		if d := argument.Distributed; d != nil {
			t.Distributed = &variable{
				Synchronization: strategy.VariableSynchronization(d.Synchronization).String(),
				Aggregation:     strategy.VariableAggregation(d.Aggregation).String(), LocalWrites: d.LocalWrites,
			}
		}
		h.Arguments = append(h.Arguments, t)
	}
	for j, r := range s.Module.Results {
		t := tensorOut(r)
		if j < len(s.Cut) {
			t.Cut = s.Cut[j]
		}
		h.Results = append(h.Results, t)
	}
	for _, a := range s.Layouts {
		h.Layouts = append(h.Layouts, annotationOut(a))
	}
	return h
}

// step returns the step that the header, the module's text and the serialized program with the
// constants describe, after it has compared them with each other.
func (h header) step(text, code []byte) (*saved.Step, error) {
	m, err := h.module(text)
	if err != nil {
		return nil, err
	}
	code, constants, err := h.constants(m, code)
	if err != nil {
		return nil, err
	}
	s := &saved.Step{
		Name: h.Step, Module: m, Code: code, Updates: h.Updates, Steps: h.Steps, Target: saved.Target(h.target),
		SplitBatch: h.SplitBatch, LocalBatch: h.LocalBatch, Padding: int(h.padding()), Training: h.Training, Mirrored: h.Mirrored,
		Guard: saved.Guard{Mode: h.NonFinite, Gradients: h.Gradients},
	}
	if s.Metrics, err = h.Metrics.in(m); err != nil {
		return nil, err
	}
	for i, t := range h.Arguments {
		argument := saved.Argument{
			Variable: t.Variable, Constant: constants[i], Ragged: t.Ragged, Sizes: t.Sizes, Fresh: h.counts(m.Arguments[i])}
		if t.Distributed != nil {
			if argument.Distributed, err = t.Distributed.in(m.Arguments[i]); err != nil {
				return nil, err
			}
		}
		s.Arguments = append(s.Arguments, argument)
	}
	for _, r := range h.Results[:len(h.Results)-len(h.Updates)] {
		s.Cut = append(s.Cut, r.Cut)
	}
	for _, a := range h.Layouts {
		layout, err := a.in()
		if err != nil {
			return nil, err
		}
		s.Layouts = append(s.Layouts, layout)
	}
	return s, nil
}

// padding is what the file's two fields say: one that keeps the padding may have both.
func (h header) padding() strategy.Padding {
	switch {
	case h.Keep:
		return strategy.KeepPadding
	case h.PadRagged:
		return strategy.MaskPadding
	}
	return strategy.NoPadding
}

// counts reports whether an argument is the variable in which a training step counts the steps that
// were not finite: a checkpoint of steps that did not count has none.
func (h header) counts(a spmd.ShardedTensor) bool {
	return h.NonFinite != 0 && a.Name == saved.Counter(h.Step) && a.DType == dtypes.Int64 && len(a.Local) == 1 && a.Local[0] <= maxCounts
}

// maxCounts bounds the elements of the counting variable.
const maxCounts = 64

// variable says what a distributed variable is beside its name, dtype, shape and annotation, which
// it has as an argument of the step.
type variable struct {
	Synchronization string `json:"synchronization"`
	Aggregation     string `json:"aggregation"`
	LocalWrites     bool   `json:"local_writes,omitempty"`
}

// in is the distributed variable that an argument is.
func (d *variable) in(a spmd.ShardedTensor) (*saved.Variable, error) {
	synchronization := strategy.SyncAuto
	for _, s := range []strategy.VariableSynchronization{strategy.OnWrite, strategy.OnRead} {
		if s.String() == d.Synchronization {
			synchronization = s
		}
	}
	if synchronization == strategy.SyncAuto {
		return nil, fmt.Errorf("tensor %q: synchronization %q", a.Name, d.Synchronization)
	}
	aggregation := strategy.AggregateNone
	for ; aggregation.String() != d.Aggregation; aggregation++ {
		if aggregation == strategy.AggregateFirst {
			return nil, fmt.Errorf("tensor %q: aggregation %q", a.Name, d.Aggregation)
		}
	}
	if perReplica := synchronization == strategy.OnRead || d.LocalWrites; perReplica != a.PerReplica {
		return nil, fmt.Errorf("tensor %q: a %s variable with per-replica storage %t", a.Name, synchronization, a.PerReplica)
	}
	return &saved.Variable{Synchronization: int(synchronization), Aggregation: int(aggregation), LocalWrites: d.LocalWrites}, nil
}
