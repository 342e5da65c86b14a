package report

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/lowering/ir"
	"github.com/tpustrategy/tpustrategy/lowering/spmd"
	"github.com/tpustrategy/tpustrategy/pjrt"
	"github.com/tpustrategy/tpustrategy/report/cost"
	"github.com/tpustrategy/tpustrategy/report/hlo"
	"github.com/tpustrategy/tpustrategy/report/memory"
	"github.com/tpustrategy/tpustrategy/sharding"
	"github.com/tpustrategy/tpustrategy/tpu/system"
)

// formatVersion is the version of the report's JSON format. It increases if a field changes its
// meaning, but not for new fields. Version 1 counted the operations of a loop once, and had a
// figure of the compiler, "seconds", instead of "roofline_seconds".
const formatVersion = 2

// Report describes a compiled step before it runs. It is plain data that can be encoded as JSON and
// decoded by [Parse]. Sizes are in bytes, times in seconds.
type Report struct {
	Version int    `json:"version"`
	Step    string `json:"step"`
	Target  Target `json:"target"`
	// Replicas is the number of replicas. LogicalDevices is the number of logical devices per
	// replica. The program has Replicas * LogicalDevices partitions.
	Replicas       int    `json:"replicas"`
	LogicalDevices int    `json:"logical_devices"`
	Mesh           string `json:"mesh,omitempty"`
	// Options are the options of the step by name, as passed to [New].
	Options map[string]string `json:"options,omitempty"`
	// Parameters is the number of elements of the trainable variables. For a training step these
	// are the parameters of the model. It is 0 for a program without a traced step.
	Parameters int64 `json:"parameters,omitempty"`
	// TextBytes is the size of the step's StableHLO text.
	TextBytes int    `json:"text_bytes,omitempty"`
	Memory    Memory `json:"memory"`
	// Suggestions are changes that reduce the memory of a step that does not fit. The step uses
	// none of them yet.
	Suggestions []string `json:"suggestions,omitempty"`
	// Temporaries are the largest temporary values of the optimized program, the largest first. If
	// the compiler rejected the program, they are the temporaries that the compiler lists, or
	// otherwise the largest results of products, gathers and similar operations in the step as
	// written, with the sizes of one replica.
	Temporaries []memory.Temporary `json:"temporaries,omitempty"`
	// Tensors are the step's variables, arguments and results.
	Tensors     []memory.Tensor `json:"tensors"`
	Collectives []Collective    `json:"collectives"`
	// Torus contains the chips that the collectives connect and the load of the links. It is nil
	// for devices that are not TPUs, for more than 1,024 devices, and in reports of earlier
	// versions.
	Torus *cost.Torus `json:"torus,omitempty"`
	// CollectiveDTypes are the dtypes of the operands of Collectives.
	CollectiveDTypes []CollectiveDType `json:"collective_dtypes,omitempty"`
	Cost             Cost              `json:"cost"`
	// Predicted is the predicted time of the step on a slice of TPUs. It is nil for other devices,
	// for a step that does not fit, and in reports of earlier versions.
	Predicted *cost.Prediction `json:"predicted,omitempty"`
	// Schedule is one run of the step on a core, in the order of the optimized program. It is nil
	// if the order is unknown, and in reports of earlier versions.
	Schedule *Schedule `json:"schedule,omitempty"`
	// Lines are the lines of Go of the step with their cost, the longest time first. It is empty
	// for a program without a traced step. Operations and values of Schedule refer to lines by
	// number.
	Lines []Line `json:"lines,omitempty"`
	// AnnotationSuggestions are annotations that remove collectives, if the caller searched for
	// them with [SuggestAnnotations].
	AnnotationSuggestions *AnnotationSuggestions `json:"annotation_suggestions,omitempty"`
	// LoweringSeconds and CompilingSeconds are the durations of lowering and compiling the step.
	LoweringSeconds  float64 `json:"lowering_seconds,omitempty"`
	CompilingSeconds float64 `json:"compiling_seconds,omitempty"`
	// Notes list the figures that the report could not determine.
	Notes []string `json:"notes,omitempty"`
}

// Target describes the devices that a step was compiled for.
type Target struct {
	// Name is the name of a slice, such as "v5e:2x4", or "cpu".
	Name string `json:"name"`
	// Kind is the plugin's name for the devices, and Platform the plugin's version.
	Kind     string `json:"kind"`
	Platform string `json:"platform"`
	Devices  int    `json:"devices"`
	Chips    int    `json:"chips,omitempty"`
	Hosts    int    `json:"hosts,omitempty"`
	// HBMBytes is the size of one core's memory, or 0 if it is unknown.
	HBMBytes int64 `json:"hbm_bytes,omitempty"`
	// PeakFLOPS is the published peak of one core in bfloat16 operations per second, or 0 if it is
	// unknown.
	PeakFLOPS float64 `json:"peak_flops,omitempty"`
	// HBMBandwidth is the published memory bandwidth of one core in bytes per second, or 0 if it is
	// unknown.
	HBMBandwidth float64 `json:"hbm_bandwidth,omitempty"`
}

// Memory contains the memory of one core that the program needs, as reported by the compiler.
type Memory struct {
	Arguments   int64 `json:"arguments"`
	Outputs     int64 `json:"outputs"`
	Temporaries int64 `json:"temporaries"`
	// Aliased is the part of Outputs that reuses the memory of arguments.
	Aliased int64 `json:"aliased"`
	Code    int64 `json:"code"`
	// Total is Arguments + Outputs - Aliased + Temporaries + Code.
	Total int64 `json:"total"`
	// Peak is the maximum main memory in use, without the code. It is the compiler's figure minus
	// Fast, or [Schedule].Peak if Fast is more than a tenth of the compiler's figure. It may
	// include memory that the other figures do not include. It is 0 if the compiler does not report
	// it.
	Peak int64 `json:"peak,omitempty"`
	// Fast is the size of the values in the core's fast memory at the peak of both memories, by the
	// schedule. The TPU compiler includes it in its peak. Peak and Limit do not include it.
	Fast int64 `json:"fast,omitempty"`
	// Needs is the maximum of Total and Peak + Code. The verdict compares it with Limit.
	Needs int64 `json:"needs"`
	// Limit is the size of the core's memory, or 0 if it is unknown.
	Limit int64 `json:"limit,omitempty"`
	// Refused is set if the compiler rejected the program as too large. Only three figures are then
	// known: Arguments, with the step's variables and arguments, Needs, from the compiler's
	// message, and Limit. Each is 0 if it is unknown.
	Refused bool    `json:"refused,omitempty"`
	Verdict Verdict `json:"verdict"`
}

// Verdict is the result of comparing the memory of a program with the memory of a core.
type Verdict string

const (
	// Fits means that at least a tenth of the memory remains free.
	Fits Verdict = "fits"
	// Tight means that less than a tenth of the memory remains free.
	Tight Verdict = "tight"
	// TooLarge means that the program needs more memory than a core has.
	TooLarge Verdict = "too large"
	// Unknown means that the size of a core's memory is unknown.
	Unknown Verdict = "unknown"
)

// Cost estimates the cost of one run of the step. The operations of a loop count once per
// iteration. A loop with an unknown number of iterations counts as one iteration, and a note
// reports it.
type Cost struct {
	// FLOPs and BytesAccessed are the figures of one core: the compiler's cost analysis, which
	// counts each loop once, plus the further iterations of the loops, counted in the optimized
	// program. They are negative if the compiler provides no cost analysis.
	FLOPs         float64 `json:"flops_per_core"`
	BytesAccessed float64 `json:"bytes_accessed_per_core"`
	// RooflineSeconds is the minimum time of one core's operations in sequence. Each operation has
	// the time of its arithmetic at the published peak, or of its main memory traffic at the
	// published rate, whichever is longer. It is not the time of a step: operations rarely reach
	// the peak, some run concurrently, and collectives, transfers and kernels, whose time is
	// unknown, are not included. It is 0 if the peak, the rate or the optimized program is unknown.
	RooflineSeconds float64 `json:"roofline_seconds,omitempty"`
	// Untimed is the number of operations of a step that RooflineSeconds does not include.
	Untimed int `json:"untimed_operations,omitempty"`
	// FloorSeconds is the minimum time of the same operations if all run concurrently: the time of
	// all arithmetic at the peak, or of all main memory traffic at the rate, whichever is longer.
	// It is 0 if the peak or the rate is unknown.
	FloorSeconds float64 `json:"floor_seconds,omitempty"`
	// ModelFLOPs is the number of operations in the matrix products and convolutions of the step as
	// written, on all replicas. It does not include operations that splitting the step adds, nor
	// products whose result is not read. It includes the recomputation of a rematerialization
	// policy.
	ModelFLOPs float64 `json:"model_flops"`
	// Utilization is ModelFLOPs divided by the number of operations that all cores can execute at
	// their published peak in RooflineSeconds, or in FloorSeconds if RooflineSeconds is 0. A run
	// achieves less. It is 0 if these figures are unknown.
	Utilization float64 `json:"model_flops_utilization,omitempty"`
}

// Input contains the compiled program, the target and the settings for [New].
type Input struct {
	// Step is the step's name.
	Step   string
	Target Target
	// Replicas and LogicalDevices are the numbers of the strategy. 0 means 1.
	Replicas, LogicalDevices int
	// Program is the compiled program. The caller keeps ownership of it. It is nil if the compiler
	// rejected the program as too large; Refused is then the result of [memory.RefusalOf].
	Program *pjrt.Executable
	Refused *memory.Refusal
	// Options are the options of the step by name.
	Options map[string]string
	// Module is the step as assembled by package lowering/spmd. It is nil for a program without a
	// traced step, and Text is then the program's StableHLO.
	Module *spmd.Module
	Text   []byte
	// Global is set if the module is a program over the whole batch instead of the step of one
	// replica. Its operations then count once, and not once per replica.
	Global bool
	// Variables reports for each argument of the module whether it is a variable.
	Variables []bool
	// Settings are the options of the step that its program does not contain.
	Settings memory.Settings
	// Parameters is the number of elements of the trainable variables.
	Parameters                        int64
	LoweringSeconds, CompilingSeconds float64
}

// CompiledStep is a compiled step, such as a *strategy.CompiledStep.
type CompiledStep interface {
	// Compiled returns the result of compiling the step.
	Compiled() *memory.CompiledStep
	// CompileVariant compiles a module as far as its collectives require, and returns the
	// partitioned or the optimized program.
	CompileVariant(ctx context.Context, m *spmd.Module) (pjrt.Program, error)
}

// Of returns the report of a compiled step, or of the step of a strategy.MemoryError. The report
// remains valid after the strategy is closed. Of takes milliseconds.
func Of(step CompiledStep) (*Report, error) {
	c := step.Compiled()
	if c.Program == nil && c.Refusal == nil {
		return nil, &errkind.Fault{Op: "report", Subject: c.Name, Reason: "the runtime does not provide the compiled program",
			Hint: "use the devices of a PJRT plugin", Class: errkind.NotImplementedError}
	}
	return New(Input{
		Step: c.Name, Target: TargetOf(c.Target), Replicas: c.Replicas, LogicalDevices: c.LogicalDevices, Program: c.Program,
		Refused: c.Refusal,
		Module:  c.Module, Variables: c.Variables, Parameters: c.Parameters, Settings: c.Settings,
		LoweringSeconds: c.Lowering.Seconds(), CompilingSeconds: c.Compiling.Seconds(),
	})
}

// TargetOf returns the Target for a slice with the given properties.
func TargetOf(facts system.SliceInfo) Target {
	return Target{
		Name: facts.Name, Kind: facts.Kind, Platform: facts.Plugin, Devices: facts.Devices, Chips: facts.Chips,
		Hosts:    facts.Hosts,
		HBMBytes: facts.HBMBytes, PeakFLOPS: facts.PeakFLOPS, HBMBandwidth: facts.HBMBandwidth,
	}
}

// New returns the report of a compiled program. Figures that the plugin does not provide are
// omitted, with a note for each. New returns errors of the plugin, and an error that matches
// [hlo.ErrProgram] for an optimized program that cannot be read.
func New(in Input) (*Report, error) {
	r := &Report{
		Version: formatVersion, Step: in.Step, Target: in.Target,
		Replicas: max(in.Replicas, 1), LogicalDevices: max(in.LogicalDevices, 1),
		Tensors: []memory.Tensor{}, Collectives: []Collective{}, Parameters: in.Parameters,
		LoweringSeconds: in.LoweringSeconds, CompilingSeconds: in.CompilingSeconds, Options: in.Options,
	}
	if in.Module != nil {
		r.Mesh = in.Module.Mesh.String()
		in.Text = in.Module.Text
		var err error
		if r.Tensors, err = memory.Tensors(in.Module, in.Variables, r.Replicas, r.LogicalDevices); err != nil {
			return nil, err
		}
	}
	r.TextBytes = len(in.Text)
	ours := in.Module != nil && !in.Global
	if in.Refused != nil {
		r.addRefusal(in.Refused)
		r.addModelFLOPs(in.Text, ours)
		var origins []*ir.Origin
		if in.Module != nil {
			origins = in.Module.Origins
		}
		r.Temporaries = in.Refused.Temporaries(in.Text, origins)
		r.addSuggestions(in)
		return r, nil
	}
	if err := r.addMemory(in.Program); err != nil {
		return nil, err
	}
	program, err := r.parseOptimized(in.Program, in.Module)
	if err != nil {
		return nil, err
	}
	mesh, err := r.meshOf(in.Module)
	if err != nil {
		return nil, err
	}
	var estimate *cost.Estimate
	var collectives *collectiveCounter
	if program != nil {
		collectives = countCollectives(program, mesh)
		r.addCollectives(collectives, program.Devices)
		r.Temporaries = temporaries(program)
		estimate = cost.Simulate(program, r.Target.Name, r.Target.PeakFLOPS, r.Target.HBMBandwidth, r.layerOf)
	}
	r.addModelFLOPs(in.Text, ours)
	if estimate != nil {
		r.addSchedule(estimate, program.HasOrigins, collectives.byLine)
	}
	if err := r.addCost(in.Program, estimate); err != nil {
		return nil, err
	}
	r.addSuggestions(in)
	return r, nil
}

func (r *Report) note(format string, args ...any) {
	r.Notes = append(r.Notes, fmt.Sprintf(format, args...))
}

func (r *Report) addRefusal(refusal *memory.Refusal) {
	r.Memory = Memory{
		Refused: true, Arguments: memory.ArgumentBytes(r.Tensors), Needs: refusal.UsedBytes(),
		Limit: cmp.Or(r.Target.HBMBytes, refusal.LimitBytes()), Verdict: TooLarge,
	}
	r.note("the compiler rejected the program as too large, so its temporaries, collectives and cost are unknown")
}

func (r *Report) addSuggestions(in Input) {
	if r.Memory.Verdict != TooLarge {
		return
	}
	r.Suggestions = memory.Step{
		Slice: r.Target.Name, Devices: r.Target.Devices, Replicas: r.Replicas, LogicalDevices: r.LogicalDevices,
		Module: in.Module, Text: in.Text,
		Global: in.Global, Settings: in.Settings, Tensors: r.Tensors, ArgumentBytes: r.Memory.Arguments,
		Temporaries: r.Temporaries,
	}.Suggestions()
}

func (r *Report) addMemory(p *pjrt.Executable) error {
	stats, err := p.MemoryStats()
	if errors.Is(err, errors.ErrUnsupported) {
		r.note("the plugin does not report the memory of a program")
		r.Memory.Verdict = Unknown
		return nil
	} else if err != nil {
		return pluginError("read memory statistics", err)
	}
	m := Memory{
		Arguments: stats.Arguments, Outputs: stats.Outputs, Temporaries: stats.Temp, Aliased: stats.Alias,
		Code: stats.GeneratedCode,
		Peak: stats.Peak, Limit: r.Target.HBMBytes, Verdict: Unknown,
	}
	m.Total = m.Arguments + m.Outputs - m.Aliased + m.Temporaries + m.Code
	m.setVerdict()
	r.Memory = m
	return nil
}

func (m *Memory) setVerdict() {
	m.Needs = max(m.Total, m.Peak+m.Code)
	switch {
	case m.Limit == 0:
	case m.Needs > m.Limit:
		m.Verdict = TooLarge
	case m.Needs > m.Limit/10*9:
		m.Verdict = Tight
	default:
		m.Verdict = Fits
	}
}

// excludeFast subtracts the values in fast memory from the peak that the compiler reports, because
// this peak includes all memories of a core. The arguments are from the schedule: main is the peak
// of main memory, both is the peak of main and fast memory together, and fast is the size of the
// values in fast memory at the time of the second peak. If the compiler's peak is too small to
// include fast memory, it is not changed.
//
// If fast memory is a large part of the peak, the difference is inexact, because the peaks of the
// two memories are at different times. In this case, excludeFast uses the peak of the schedule.
func (m *Memory) excludeFast(main, fast, both int64) {
	if fast <= 0 || m.Peak-fast < main/10*9 {
		return
	}
	isClose := m.Peak-both <= m.Peak/10 && both-m.Peak <= m.Peak/10
	if m.Fast = fast; isClose && fast > m.Peak/10 {
		m.Peak = main
	} else {
		m.Peak -= fast
	}
	m.setVerdict()
}

// parseOptimized parses the optimized program of a step. If the plugin does not provide the
// program, or the format is not supported, parseOptimized adds a note to the report and returns
// nil.
func (r *Report) parseOptimized(p *pjrt.Executable, step *spmd.Module) (*hlo.Program, error) {
	program, err := p.OptimizedProgram()
	if errors.Is(err, errors.ErrUnsupported) {
		r.note("the plugin does not provide the optimized program, so the collectives are unknown and loops count once")
		return nil, nil
	} else if err != nil {
		return nil, pluginError("read the optimized program", err)
	}
	m, err := hlo.Parse(program, step)
	if errors.Is(err, errors.ErrUnsupported) {
		r.note("the optimized program has the unsupported format %s, so the collectives are unknown and loops count once",
			program.Format)
		return nil, nil
	}
	return m, err
}

// meshOf returns the mesh of the step, which consists of the replica axis and the logical axes.
func (r *Report) meshOf(m *spmd.Module) (sharding.Mesh, error) {
	axes := []sharding.Axis{{Name: spmd.ReplicaAxis, Size: r.Replicas}}
	if m != nil && m.LogicalMesh.Size() == r.LogicalDevices && m.LogicalMesh.Rank() > 0 {
		axes = append(axes, m.LogicalMesh.Axes()...)
	} else {
		axes = append(axes, sharding.Axis{Name: spmd.LogicalAxis, Size: r.LogicalDevices})
	}
	return sharding.NewMesh(axes...)
}

func (r *Report) addCollectives(c *collectiveCounter, devices []int) {
	r.Torus = cost.NewTorus(r.Target.Name, devices, r.Replicas*r.LogicalDevices, c.groupTraffic())
	if all := c.collectives(); all != nil {
		r.Collectives = all
	}
	r.CollectiveDTypes = c.dtypes()
	if slices.ContainsFunc(r.Collectives, func(c Collective) bool { return c.InLoop }) {
		r.note("some collectives are in a loop with an unknown number of iterations; they count once")
	}
}

// CollectiveBytes returns the total bytes and the total moved bytes of all collectives over an
// axis.
func (r *Report) CollectiveBytes(axis string) (bytes, moved int64) {
	for _, c := range r.Collectives {
		if c.Axis == axis {
			bytes += c.Bytes
			moved += c.Moved
		}
	}
	return bytes, moved
}

func pluginError(op string, err error) error { return &errkind.Fault{Op: "report: " + op, Err: err} }
