package stepfile

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gomlx/compute/dtypes"

	"github.com/tpustrategy/tpustrategy/internal/engine/savedstep"
	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/lowering/ragged"
	"github.com/tpustrategy/tpustrategy/lowering/spmd"
	"github.com/tpustrategy/tpustrategy/sharding"
	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/tpu"
)

// header is the JSON header of a step file. It describes a step and its target.
type header struct {
	Version int    `json:"version"`
	Step    string `json:"step"`
	target
	Axes []sharding.Axis `json:"axes"`
	// LogicalAxes are the named logical axes of a replica. Axes are the axes of the whole mesh, into
	// which a logical axis may be split.
	LogicalAxes []sharding.Axis `json:"logical_axes,omitempty"`
	Arguments   []tensor        `json:"arguments"`
	Results     []tensor        `json:"results"`
	Updates     []int           `json:"updates,omitempty"`
	// Steps is the number of steps of a loop, or 0 for a single step.
	Steps int `json:"steps,omitempty"`
	// Replicas is the number of replicas of the program, with one partition each; 0 means one
	// replica with all devices.
	Replicas   int  `json:"replicas,omitempty"`
	SplitBatch bool `json:"split_batch,omitempty"`
	LocalBatch bool `json:"local_batch,omitempty"`
	PadRagged  bool `json:"pad_ragged,omitempty"`
	Keep       bool `json:"keep_padding,omitempty"`
	Training   bool `json:"training,omitempty"`
	Mirrored   bool `json:"mirrored_results,omitempty"`
	// NonFinite is a train.NonFinite. Gradients are the names of the gradients' variables.
	NonFinite int          `json:"non_finite,omitempty"`
	Gradients []string     `json:"gradients,omitempty"`
	Layouts   []annotation `json:"argument_annotations,omitempty"`
	Metrics   *metrics     `json:"metrics,omitempty"`
	// ConstantBytes is the total size of the large constants in bytes.
	ConstantBytes uint64 `json:"constant_bytes,omitempty"`
}

// target is the JSON form of a [savedstep.Target]. The field Plugin is the result of
// pjrt.Plugin.Identity.
type target struct {
	Plugin      string              `json:"plugin"`
	Devices     string              `json:"devices"`
	Topology    string              `json:"topology"`
	Mesh        tpu.Coordinates     `json:"mesh"`
	IDs         [][]int             `json:"device_ids"`
	Coordinates [][]tpu.Coordinates `json:"coordinates"`
}

// tensor is the JSON form of an [spmd.ShardedTensor] and of a [savedstep.Argument].
type tensor struct {
	Name     string `json:"name"`
	Variable bool   `json:"variable,omitempty"`
	// Constant reports that an argument is a large constant of the step. Variable is true as well.
	Constant bool `json:"constant,omitempty"`
	// Distributed describes a variable of the strategy's scope. It is nil for a variable of a store.
	Distributed *variable `json:"distributed,omitempty"`
	DType       string    `json:"dtype"`
	Local       []int     `json:"local"`
	Global      []int     `json:"global"`
	Shard       []int     `json:"shard"`
	Spec        string    `json:"spec"`
	PerReplica  bool      `json:"per_replica,omitempty"`
	PerStep     bool      `json:"per_step,omitempty"`
	Ragged      bool      `json:"ragged,omitempty"` // an argument with a different shape per replica
	// Sizes has, for each dimension of a ragged argument, the index of its padded size, or -1.
	Sizes []int `json:"padded_sizes,omitempty"`
	// Padded are the padded dimensions of a result.
	Padded     []ragged.Dim `json:"padded,omitempty"`
	Annotation annotation   `json:"annotation"`
	// Over is set for a tensor that is sharded over the replicas.
	Over    *replicaShard `json:"over,omitempty"`
	Donated bool          `json:"donated,omitempty"`
	Result  int           `json:"result,omitempty"`
}

// replicaShard is the JSON form of an [spmd.ReplicaShard].
type replicaShard struct {
	Dim  int `json:"dimension"`
	Size int `json:"size"`
}

// annotation is the JSON form of a [logical.Annotation].
type annotation struct {
	Kind   string `json:"kind"`
	Device int    `json:"device,omitempty"`
	Parts  []int  `json:"parts,omitempty"`
	// Axes are the axis names for each dimension, for sharding by names.
	Axes [][]string `json:"axes,omitempty"`
}

func encodeAnnotation(a logical.Annotation) annotation {
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

// decode converts the JSON form to an annotation. It returns an error for an unknown kind.
func (a annotation) decode() (logical.Annotation, error) {
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
		return logical.SplitOverAxes(dims...), nil
	}
	return logical.Annotation{}, fmt.Errorf("annotation %q", a.Kind)
}

func encodeTensor(p spmd.ShardedTensor) tensor {
	t := tensor{
		Name: p.Name, DType: p.DType.String(), Local: p.LocalDims, Global: p.GlobalDims, Shard: p.ShardDims,
		Spec: p.Spec.ShardyText("mesh"), PerReplica: p.PerReplica, PerStep: p.PerStep,
		Annotation: encodeAnnotation(p.Annotation), Donated: p.Donated, Result: p.Result,
		Constant: p.IsConstant,
	}
	if p.ReplicaShard.IsSharded() {
		t.Over = new(replicaShard(p.ReplicaShard))
	}
	return t
}

// decode converts the JSON form to an argument or a result. It returns an error for a field that
// cannot be parsed.
func (t tensor) decode() (p spmd.ShardedTensor, err error) {
	p.Name, p.LocalDims, p.GlobalDims, p.ShardDims = t.Name, t.Local, t.Global, t.Shard
	p.PerReplica, p.PerStep, p.Donated, p.Result, p.IsConstant = t.PerReplica, t.PerStep, t.Donated, t.Result,
		t.Constant
	if t.Over != nil {
		p.ReplicaShard = spmd.ReplicaShard(*t.Over)
		if p.ReplicaShard.Size < 1 || p.ReplicaShard.Dim < 0 || p.ReplicaShard.Dim >= len(p.LocalDims) || p.PerReplica {
			return p, fmt.Errorf("tensor %q: %v in parts of %s", t.Name, p.LocalDims, p.ReplicaShard)
		}
	}
	if p.DType, err = dtypes.DTypeString(t.DType); err != nil {
		return p, fmt.Errorf("tensor %q: dtype %q", t.Name, t.DType)
	}
	if p.Annotation, err = t.Annotation.decode(); err != nil {
		return p, fmt.Errorf("tensor %q: %w", t.Name, err)
	}
	if _, p.Spec, err = sharding.ParseShardy(t.Spec); err != nil {
		return p, fmt.Errorf("tensor %q: %w", t.Name, err)
	}
	return p, nil
}

func newHeader(s *savedstep.Step) header {
	padding := strategy.Padding(s.Padding)
	h := header{
		Version: version, Step: s.Name, target: target(s.Target), Axes: s.Module.Mesh.Axes(), Updates: s.Updates,
		Steps:      s.Steps,
		SplitBatch: s.SplitBatch, LocalBatch: s.LocalBatch, PadRagged: padding == strategy.MaskPadding,
		Keep: padding == strategy.KeepPadding, Training: s.Training, Mirrored: s.Mirrored,
		NonFinite: s.Guard.Mode, Gradients: s.Guard.Gradients, Metrics: encodeMetrics(s.Metrics),
	}
	if s.Module.Partitions == 1 {
		h.Replicas = s.Module.Replicas
	}
	if mesh := s.Module.LogicalMesh; mesh.Rank() > 0 && !slices.Equal(mesh.AxisNames(), []string{logical.LogicalAxis}) {
		h.LogicalAxes = mesh.Axes()
	}
	for i, a := range s.Module.Arguments {
		t, argument := encodeTensor(a), s.Arguments[i]
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
		t := encodeTensor(r)
		if j < len(s.PaddedResults) {
			t.Padded = s.PaddedResults[j]
		}
		h.Results = append(h.Results, t)
	}
	for _, a := range s.Annotations {
		h.Layouts = append(h.Layouts, encodeAnnotation(a))
	}
	return h
}

// decodeStep creates the step from the sections of a file. text is the text of the module, and code
// is the serialized program, followed by the large constants. decodeStep returns an error if these
// sections are not consistent with the header.
func (h header) decodeStep(text, code []byte) (*savedstep.Step, error) {
	m, err := h.decodeModule(text)
	if err != nil {
		return nil, err
	}
	code, constants, err := h.splitConstants(m, code)
	if err != nil {
		return nil, err
	}
	s := &savedstep.Step{
		Name: h.Step, Module: m, Code: code, Updates: h.Updates, Steps: h.Steps, Target: savedstep.Target(h.target),
		SplitBatch: h.SplitBatch, LocalBatch: h.LocalBatch, Padding: int(h.padding()), Training: h.Training,
		Mirrored: h.Mirrored,
		Guard:    savedstep.Guard{Mode: h.NonFinite, Gradients: h.Gradients},
	}
	if s.Metrics, err = h.Metrics.decode(m); err != nil {
		return nil, err
	}
	for i, t := range h.Arguments {
		argument := savedstep.Argument{
			Variable: t.Variable, Constant: constants[i], Ragged: t.Ragged, Sizes: t.Sizes,
			ZeroIfMissing: h.isGuardVariable(m.Arguments[i])}
		if t.Distributed != nil {
			if argument.Distributed, err = t.Distributed.decode(m.Arguments[i]); err != nil {
				return nil, err
			}
		}
		s.Arguments = append(s.Arguments, argument)
	}
	for _, r := range h.Results[:len(h.Results)-len(h.Updates)] {
		s.PaddedResults = append(s.PaddedResults, r.Padded)
	}
	for _, a := range h.Layouts {
		layout, err := a.decode()
		if err != nil {
			return nil, err
		}
		s.Annotations = append(s.Annotations, layout)
	}
	return s, nil
}

// padding converts the two padding fields of the header to a strategy.Padding. The field Keep has
// precedence.
func (h header) padding() strategy.Padding {
	switch {
	case h.Keep:
		return strategy.KeepPadding
	case h.PadRagged:
		return strategy.MaskPadding
	}
	return strategy.NoPadding
}

// isGuardVariable reports whether an argument is the variable that counts non-finite steps. A
// checkpoint from a step that did not count non-finite steps lacks this variable, so Load creates
// it.
func (h header) isGuardVariable(a spmd.ShardedTensor) bool {
	return h.NonFinite != 0 && a.Name == savedstep.GuardPath(h.Step) && a.DType == dtypes.Int64 &&
		len(a.LocalDims) == 1 && a.LocalDims[0] <= maxGuardElements
}

// maxGuardElements is the maximum number of elements of a variable that counts non-finite steps.
const maxGuardElements = 64

// variable is the JSON form of a [savedstep.Variable].
type variable struct {
	Synchronization string `json:"synchronization"`
	Aggregation     string `json:"aggregation"`
	LocalWrites     bool   `json:"local_writes,omitempty"`
}

// decode converts the JSON form to the distributed variable that is passed as argument a. It
// returns an error if a name is unknown or the variable is not consistent with a.
func (d *variable) decode(a spmd.ShardedTensor) (*savedstep.Variable, error) {
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
		return nil, fmt.Errorf("tensor %q: a %s variable with per-replica storage %t", a.Name, synchronization,
			a.PerReplica)
	}
	return &savedstep.Variable{Synchronization: int(synchronization), Aggregation: int(aggregation),
		LocalWrites: d.LocalWrites}, nil
}
