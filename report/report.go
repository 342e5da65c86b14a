package report

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/tpustrategy/tpustrategy/lowering/ir"
	"github.com/tpustrategy/tpustrategy/lowering/spmd"
	"github.com/tpustrategy/tpustrategy/pjrt"
	"github.com/tpustrategy/tpustrategy/sharding"
)

// FormatVersion is the version of the report's JSON form. It grows when a field changes its
// meaning, and not for new fields. Version 1 counted the operations of a loop once, and had a sum
// of the compiler's, "seconds", in the place of "roofline_seconds".
const FormatVersion = 2

// Report describes a compiled step before it runs. It is plain data, all of which its JSON form
// holds. Sizes are in bytes, times in seconds.
type Report struct {
	Version int    `json:"version"`
	Step    string `json:"step"`
	Target  Target `json:"target"`
	// Replicas is the number of replicas, and LogicalDevices the number of logical devices of each.
	// The program has Replicas * LogicalDevices partitions.
	Replicas       int    `json:"replicas"`
	LogicalDevices int    `json:"logical_devices"`
	Mesh           string `json:"mesh,omitempty"`
	// Options are those that the step was made with, by name, as far as the caller of [New] gave them.
	Options map[string]string `json:"options,omitempty"`
	// Parameters is the number of elements of the step's trainable variables: of a training step,
	// those of the model. It is 0 for a program from elsewhere.
	Parameters int64 `json:"parameters,omitempty"`
	// TextBytes is the size of the step's StableHLO text.
	TextBytes int    `json:"text_bytes,omitempty"`
	Memory    Memory `json:"memory"`
	// Suggestions are changes that make a step smaller that does not fit. None of them is in use already.
	Suggestions []string `json:"suggestions,omitempty"`
	// Temporaries are the largest values between the operations of the optimized program, largest
	// first. Of a program that the compiler refused they are those that the compiler lists,
	// or else the largest results of products, gathers and the like in the step as it was written, which
	// are those of a replica.
	Temporaries []Temporary `json:"temporaries,omitempty"`
	// Tensors are the step's variables, arguments and results.
	Tensors     []Tensor     `json:"tensors"`
	Collectives []Collective `json:"collectives"`
	// Torus says which chips the collectives join and what its links carry. It is nil for devices that
	// are no TPUs, for more than 1,024 of them, and in reports that were written before it was made.
	Torus *Torus `json:"torus,omitempty"`
	// CollectiveDTypes says of which dtypes the operands of Collectives are.
	CollectiveDTypes []CollectiveDType `json:"collective_dtypes,omitempty"`
	Cost             Cost              `json:"cost"`
	// Predicted is the time that the step should take on a slice of TPUs. It is nil for other devices,
	// for a step that does not fit, and in reports that were written before it was made.
	Predicted *Prediction `json:"predicted,omitempty"`
	// Schedule is one run of the step on a core, as the optimized program has it. It is nil if that is
	// not known, and in reports that were written before it was made.
	Schedule *Schedule `json:"schedule,omitempty"`
	// Lines are the lines of Go that the step comes from, by what they take, the longest first; none for
	// a program from elsewhere. Operations and values of Schedule have the numbers of their lines.
	Lines []Line `json:"lines,omitempty"`
	// AnnotationSuggestions are annotations that remove collectives, if the caller searched for them: see
	// [SuggestAnnotations].
	AnnotationSuggestions *AnnotationSuggestions `json:"annotation_suggestions,omitempty"`
	// LoweringSeconds and CompilingSeconds are the times that lowering and compiling the step took.
	LoweringSeconds  float64 `json:"lowering_seconds,omitempty"`
	CompilingSeconds float64 `json:"compiling_seconds,omitempty"`
	// Notes say what the report could not find out.
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
	// HBMBytes is the size of one core's memory; 0 if it is not known.
	HBMBytes int64 `json:"hbm_bytes,omitempty"`
	// PeakFLOPS is the published peak of one core in bfloat16 operations per second; 0 if it is not
	// known.
	PeakFLOPS float64 `json:"peak_flops,omitempty"`
	// HBMBandwidth is the published rate of one core's memory in bytes per second; 0 if it is not
	// known.
	HBMBandwidth float64 `json:"hbm_bandwidth,omitempty"`
}

// Memory says how much of one core's memory the program needs, by the compiler's account.
type Memory struct {
	Arguments   int64 `json:"arguments"`
	Outputs     int64 `json:"outputs"`
	Temporaries int64 `json:"temporaries"`
	// Aliased is the part of Outputs that reuses the memory of arguments.
	Aliased int64 `json:"aliased"`
	Code    int64 `json:"code"`
	// Total is Arguments + Outputs - Aliased + Temporaries + Code.
	Total int64 `json:"total"`
	// Peak is the most main memory in use at once, without the code: the compiler's figure without Fast,
	// or [Schedule].Peak if Fast is more than a tenth of the compiler's figure. It may count memory that the
	// other figures leave out. It is 0 if the compiler reports none.
	Peak int64 `json:"peak,omitempty"`
	// Fast is the size of the values in the core's fast memory at the peak of both memories, by the
	// schedule. The compiler of TPUs includes it in its peak; Peak and Limit do not include it.
	Fast int64 `json:"fast,omitempty"`
	// Needs is the greater of Total and Peak + Code. The verdict compares it with Limit.
	Needs int64 `json:"needs"`
	// Limit is the size of the core's memory; 0 if it is not known.
	Limit int64 `json:"limit,omitempty"`
	// Refused says that the compiler refused the program as too large. Of it only Arguments, which has
	// the step's variables and arguments, Needs, the compiler's figure, and Limit are known; each is 0 if
	// it is not.
	Refused bool    `json:"refused,omitempty"`
	Verdict Verdict `json:"verdict"`
}

// Verdict says whether a program fits into the memory of a core.
type Verdict string

const (
	// Fits says that the program leaves at least a tenth of the memory.
	Fits Verdict = "fits"
	// Tight says that the program leaves less than a tenth of the memory.
	Tight Verdict = "tight"
	// TooLarge says that the program needs more memory than a core has.
	TooLarge Verdict = "too large"
	// Unknown says that the size of a core's memory is not known.
	Unknown Verdict = "unknown"
)

// Tensor describes a variable, an argument or a result of the step.
type Tensor struct {
	// Role is "variable", "argument" or "result".
	Role  string `json:"role"`
	Name  string `json:"name"`
	DType string `json:"dtype"`
	// Shape is the shape of one replica's tensor, or of the whole tensor where Cut is set,
	// and Shard the shape of the part that one core holds, with its padding.
	Shape []int `json:"shape"`
	Shard []int `json:"shard"`
	// PerReplica is true if the tensor differs between replicas, and false if all replicas have the
	// same.
	PerReplica bool `json:"per_replica"`
	// Cut is nil unless the replicas share the tensor out among themselves.
	Cut *Cut `json:"cut,omitempty"`
	// Annotation says how the tensor is laid over the logical devices, as the program's author
	// wrote it, and Spec how it is laid over the mesh.
	Annotation string `json:"annotation"`
	Spec       string `json:"spec"`
	// BytesPerCore is the size of the part that each core holds, and TotalBytes that of Shape.
	BytesPerCore int64 `json:"bytes_per_core"`
	TotalBytes   int64 `json:"total_bytes"`
	// Copies is the number of a replica's logical devices that hold each element of what the replica
	// has.
	Copies int `json:"copies"`
	// Donated is true if a result reuses the tensor's memory.
	Donated bool `json:"donated,omitempty"`
	// Starts holds the first index, in each dimension, of the part that each logical device of
	// replica 0 holds. It is empty if each logical device holds the whole tensor.
	Starts [][]int `json:"starts,omitempty"`
}

// Cut says how the replicas share out a tensor: each has a part of so many indices of a dimension, the
// last ones fewer or none.
type Cut struct {
	Dim      int `json:"dim"`
	Replicas int `json:"replicas"`
	Part     int `json:"part"`
}

// Cost estimates one run of the step. The operations of a loop count as often as the loop runs. A
// loop whose number of rounds is not known counts as one round, and a note says so.
type Cost struct {
	// FLOPs and BytesAccessed are the figures of one core: the compiler's account, which counts
	// each loop once, plus the other rounds of the loops, counted in the optimized program. They
	// are negative if the compiler gives no account.
	FLOPs         float64 `json:"flops_per_core"`
	BytesAccessed float64 `json:"bytes_accessed_per_core"`
	// RooflineSeconds is the least time of one core's operations, one after another. Each operation
	// takes the time of its arithmetic at the published peak, or of its traffic with the main
	// memory at the published rate, whichever is longer. It is not the time of a step: operations
	// rarely reach the peak, some run side by side, and it leaves out collectives, transfers and
	// kernels, whose time is not known. It is 0 if the peak, the rate or the optimized program is
	// not known.
	RooflineSeconds float64 `json:"roofline_seconds,omitempty"`
	// Untimed is the number of operations of a step that RooflineSeconds leaves out.
	Untimed int `json:"untimed_operations,omitempty"`
	// FloorSeconds is the least time of the same operations if all run at once: the time of all
	// arithmetic at the peak, or of all traffic with the main memory at the rate, whichever is
	// longer. It is 0 if the peak or the rate is not known.
	FloorSeconds float64 `json:"floor_seconds,omitempty"`
	// ModelFLOPs is the number of operations in the matrix products and convolutions of the step as
	// it was written, on all replicas. It does not count what splitting the step adds, nor products
	// whose result nothing reads. It counts what a rematerialization policy computes again.
	ModelFLOPs float64 `json:"model_flops"`
	// Utilization is ModelFLOPs divided by the number of operations that all cores can do at their
	// published peak in RooflineSeconds, or in FloorSeconds if RooflineSeconds is 0. A run reaches
	// less. It is 0 if these figures are not known.
	Utilization float64 `json:"model_flops_utilization,omitempty"`
}

// Input is what [New] makes a report from.
type Input struct {
	// Step is the step's name.
	Step   string
	Target Target
	// Replicas and LogicalDevices are those of the strategy; 0 stands for 1.
	Replicas, LogicalDevices int
	// Program is the compiled program. The caller still owns it. It is nil if the compiler refused the
	// program as too large, of which Refused says what [RefusalOf] read.
	Program *pjrt.Executable
	Refused *Refusal
	// Options are those that the step was made with, by name.
	Options map[string]string
	// Module is the step as package lowering assembled it. For a program from elsewhere it is nil,
	// and Text is the program's StableHLO.
	Module *spmd.Module
	Text   []byte
	// Global says that the module is a program over the whole batch, and not the step of a replica:
	// what it asks for is asked once.
	Global bool
	// Variables is true for each argument of the module that is a variable.
	Variables []bool
	// Settings are the options of the step that its program does not contain.
	Settings Settings
	// Parameters is the number of elements of the trainable variables.
	Parameters                        int64
	LoweringSeconds, CompilingSeconds float64
}

// New returns the report of a compiled program. It leaves out the figures that the plugin does not
// give, with a note for each. It returns errors of the plugin, and an error that matches
// [ErrProgram] for an optimized program that cannot be read.
func New(in Input) (*Report, error) {
	r := &Report{
		Version: FormatVersion, Step: in.Step, Target: in.Target,
		Replicas: max(in.Replicas, 1), LogicalDevices: max(in.LogicalDevices, 1),
		Tensors: []Tensor{}, Collectives: []Collective{}, Parameters: in.Parameters,
		LoweringSeconds: in.LoweringSeconds, CompilingSeconds: in.CompilingSeconds, Options: in.Options,
	}
	if in.Module != nil {
		r.Mesh = in.Module.Mesh.String()
		in.Text = in.Module.Text
		if err := r.addTensors(in.Module, in.Variables); err != nil {
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
		if r.Temporaries = in.Refused.temporaries(origins); r.Temporaries == nil {
			r.Temporaries = writtenTemporaries(in.Text, origins)
		}
		r.addSuggestions(in)
		return r, nil
	}
	if err := r.addMemory(in.Program); err != nil {
		return nil, err
	}
	program, err := r.optimized(in.Program)
	if err != nil {
		return nil, err
	}
	mesh, err := r.meshOf(in.Module)
	if err != nil {
		return nil, err
	}
	if program != nil && in.Module != nil && len(in.Module.Origins) > 0 {
		program.locate(in.Module)
	}
	r.addCollectives(program, mesh)
	if program != nil {
		r.Temporaries = program.temporaries()
	}
	r.addModelFLOPs(in.Text, ours)
	if err := r.addCost(in.Program, program); err != nil {
		return nil, err
	}
	r.addSuggestions(in)
	return r, nil
}

func (r *Report) note(format string, args ...any) {
	r.Notes = append(r.Notes, fmt.Sprintf(format, args...))
}

func (r *Report) addTensors(m *spmd.Module, variables []bool) error {
	add := func(role string, p spmd.ShardedTensor) error {
		copies, err := sharding.ReplicationFactor(m.Mesh, p.Spec)
		if err != nil {
			return ofTensor(role, p.Name, err)
		}
		shape := p.Over.Wholes(p.Local)
		var cut *Cut
		if p.Over.Is() {
			cut = &Cut{Dim: p.Over.Dim, Replicas: r.Replicas, Part: p.Over.Part(r.Replicas)}
		} else if !p.PerReplica {
			copies /= r.Replicas
		}
		t := Tensor{
			Role: role, Name: p.Name, DType: p.DType.String(), Shape: nonNil(shape), Shard: nonNil(p.Shard),
			PerReplica: p.PerReplica, Cut: cut, Annotation: p.Annotation.String(), Spec: p.Spec.String(),
			BytesPerCore: int64(p.DType.Size()) * product(p.Shard), TotalBytes: int64(p.DType.Size()) * product(shape),
			Copies: max(copies, 1), Donated: p.Donated,
		}
		for device := 0; device < r.LogicalDevices && (t.Copies < r.LogicalDevices || cut != nil); device++ {
			// The first devices of the mesh are replica 0's.
			ranges, err := sharding.IndexRanges(m.Mesh, p.Spec, p.Global, device)
			if err != nil {
				return ofTensor(role, p.Name, err)
			}
			start := []int{}
			for _, r := range ranges {
				start = append(start, r.Start)
			}
			t.Starts = append(t.Starts, start)
		}
		r.Tensors = append(r.Tensors, t)
		return nil
	}
	updated := map[int]bool{}
	for i, a := range m.Arguments {
		role := "argument"
		if i < len(variables) && variables[i] {
			role = "variable"
		}
		if a.Donated {
			updated[a.Result] = true
		}
		if err := add(role, a); err != nil {
			return err
		}
	}
	for i, result := range m.Results {
		if updated[i] {
			continue // the variable's next value, in the same memory
		}
		if err := add("result", result); err != nil {
			return err
		}
	}
	return nil
}

func nonNil(dims []int) []int { return append([]int{}, dims...) }

func product(dims []int) int64 {
	n := int64(1)
	for _, d := range dims {
		n *= int64(d)
	}
	return n
}

func (r *Report) addMemory(p *pjrt.Executable) error {
	stats, err := p.MemoryStats()
	if errors.Is(err, errors.ErrUnsupported) {
		r.note("the plugin keeps no account of a program's memory")
		r.Memory.Verdict = Unknown
		return nil
	} else if err != nil {
		return fromPlugin("read memory statistics", err)
	}
	m := Memory{
		Arguments: stats.Arguments, Outputs: stats.Outputs, Temporaries: stats.Temp, Aliased: stats.Alias, Code: stats.GeneratedCode,
		Peak: stats.Peak, Limit: r.Target.HBMBytes, Verdict: Unknown,
	}
	m.Total = m.Arguments + m.Outputs - m.Aliased + m.Temporaries + m.Code
	m.judge()
	r.Memory = m
	return nil
}

// judge sets Needs and Verdict by the other figures.
func (m *Memory) judge() {
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

// leaveOutFast takes the values in fast memory out of the compiler's peak, which counts all memories of a
// core. main is the peak of the main memory by the schedule, fast the fast memory in use at the peak of both
// memories together, and both that peak. A peak that is too small to contain fast stays as it is.
//
// Where the fast memory is a large part of the peak, the difference of the two figures is not exact, and
// the two memories have their peaks at different times. The schedule's figure is then the better one.
func (m *Memory) leaveOutFast(main, fast, both int64) {
	if fast <= 0 || m.Peak-fast < main/10*9 {
		return
	}
	isClose := m.Peak-both <= m.Peak/10 && both-m.Peak <= m.Peak/10
	if m.Fast = fast; isClose && fast > m.Peak/10 {
		m.Peak = main
	} else {
		m.Peak -= fast
	}
	m.judge()
}

// optimized reads the optimized program; nil, with a note, if there is none to read.
func (r *Report) optimized(p *pjrt.Executable) (*hloModule, error) {
	program, err := p.OptimizedProgram()
	if errors.Is(err, errors.ErrUnsupported) {
		r.note("the plugin does not give the optimized program, so the collectives are not known, and what is in loops counts once")
		return nil, nil
	} else if err != nil {
		return nil, fromPlugin("read the optimized program", err)
	}
	m, err := parseProgram(program)
	if errors.Is(err, errors.ErrUnsupported) {
		r.note("the optimized program is in a form that is not read (%s), so the collectives are not known, and what is in loops counts once", program.Format)
		return nil, nil
	}
	return m, err
}

// meshOf is the mesh of the replicas and the logical axes, by their names.
func (r *Report) meshOf(m *spmd.Module) (sharding.Mesh, error) {
	axes := []sharding.Axis{{Name: spmd.ReplicaAxis, Size: r.Replicas}}
	if m != nil && m.Logical.Size() == r.LogicalDevices && m.Logical.Rank() > 0 {
		axes = append(axes, m.Logical.Axes()...)
	} else {
		axes = append(axes, sharding.Axis{Name: spmd.LogicalAxis, Size: r.LogicalDevices})
	}
	return sharding.NewMesh(axes...)
}

func (r *Report) addCollectives(m *hloModule, mesh sharding.Mesh) {
	if m == nil {
		return
	}
	on := r.torus(m)
	counted := m.counted(mesh, on)
	if on != nil {
		r.Torus = on
		on.finish()
	}
	if all := counted.collectives(); all != nil {
		r.Collectives = all
	}
	r.CollectiveDTypes = counted.dtypes()
	if slices.ContainsFunc(r.Collectives, func(c Collective) bool { return c.InLoop }) {
		r.note("some collectives are in a loop whose number of rounds is not known; they are counted for one round")
	}
}

// Largest returns the tensors of a role, or all tensors if role is empty, in the order of their
// bytes per core, the largest first.
func (r *Report) Largest(role string) []Tensor {
	var all []Tensor
	for _, t := range r.Tensors {
		if role == "" || t.Role == role {
			all = append(all, t)
		}
	}
	slices.SortStableFunc(all, func(a, b Tensor) int { return cmp.Compare(b.BytesPerCore, a.BytesPerCore) })
	return all
}

// CollectiveBytes returns the sums of [Collective].Bytes and of [Collective].Moved over the
// collectives of an axis.
func (r *Report) CollectiveBytes(axis string) (bytes, moved int64) {
	for _, c := range r.Collectives {
		if c.Axis == axis {
			bytes += c.Bytes
			moved += c.Moved
		}
	}
	return bytes, moved
}
