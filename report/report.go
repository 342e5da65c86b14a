package report

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/tpustrategy/tpustrategy/lowering/module"
	"github.com/tpustrategy/tpustrategy/pjrt"
	"github.com/tpustrategy/tpustrategy/sharding"
)

// FormatVersion is the version of the report's JSON form. It grows when a field
// changes its meaning; new fields leave it. Version 1 counted what is in a loop once,
// and had a sum of the compiler's, "seconds", in the place of "roofline_seconds".
const FormatVersion = 2

// Report is what is known of a compiled step before it runs. It is plain data:
// its JSON form holds all of it. Sizes are in bytes, times in seconds.
type Report struct {
	Version int    `json:"version"`
	Step    string `json:"step"`
	Target  Target `json:"target"`
	// Replicas is R and LogicalDevices P: the program has R*P partitions.
	Replicas       int    `json:"replicas"`
	LogicalDevices int    `json:"logical_devices"`
	Mesh           string `json:"mesh,omitempty"`
	Memory         Memory `json:"memory"`
	// Tensors are the step's variables, arguments and results at its border.
	Tensors     []Tensor     `json:"tensors"`
	Collectives []Collective `json:"collectives"`
	Cost        Cost         `json:"cost"`
	// LoweringSeconds and CompilingSeconds are how long the step took to make.
	LoweringSeconds  float64 `json:"lowering_seconds,omitempty"`
	CompilingSeconds float64 `json:"compiling_seconds,omitempty"`
	// Notes say what the report could not find out.
	Notes []string `json:"notes,omitempty"`
}

// Target is what a step was compiled for.
type Target struct {
	// Name is such as "v5e:2x4", or "cpu".
	Name string `json:"name"`
	// Kind is the plugin's name of the devices, and Platform its version.
	Kind     string `json:"kind"`
	Platform string `json:"platform"`
	Devices  int    `json:"devices"`
	Chips    int    `json:"chips,omitempty"`
	Hosts    int    `json:"hosts,omitempty"`
	// HBMBytes is the memory of one core; 0 if it is not known.
	HBMBytes int64 `json:"hbm_bytes,omitempty"`
	// PeakFLOPS is the published peak of one core in bfloat16 operations a
	// second; 0 if it is not known.
	PeakFLOPS float64 `json:"peak_flops,omitempty"`
	// HBMBandwidth is the published rate of a core's memory in bytes a second; 0
	// if it is not known.
	HBMBandwidth float64 `json:"hbm_bandwidth,omitempty"`
}

// Memory is what the program needs of one core's memory, by the compiler's
// account.
type Memory struct {
	Arguments   int64 `json:"arguments"`
	Outputs     int64 `json:"outputs"`
	Temporaries int64 `json:"temporaries"`
	// Aliased is the part of Outputs that takes over the memory of arguments.
	Aliased int64 `json:"aliased"`
	Code    int64 `json:"code"`
	// Total is Arguments + Outputs - Aliased + Temporaries + Code.
	Total int64 `json:"total"`
	// Peak is the compiler's own figure, without the code, which may count what
	// the others leave out; 0 if it gives none.
	Peak int64 `json:"peak,omitempty"`
	// Needs is the greater of Total and Peak + Code: what the verdict is about.
	Needs int64 `json:"needs"`
	// Limit is the core's memory; 0 if it is not known.
	Limit   int64   `json:"limit,omitempty"`
	Verdict Verdict `json:"verdict"`
}

// Verdict says whether a program fits.
type Verdict string

const (
	// Fits is a program with room to spare.
	Fits Verdict = "fits"
	// Tight is one that leaves less than a tenth of the memory.
	Tight Verdict = "tight"
	// TooLarge is one that needs more than there is.
	TooLarge Verdict = "too large"
	// Unknown is the verdict where the memory of a core is not known.
	Unknown Verdict = "unknown"
)

// Tensor is a tensor at the step's border.
type Tensor struct {
	// Role is "variable", "argument" or "result".
	Role  string `json:"role"`
	Name  string `json:"name"`
	DType string `json:"dtype"`
	// Shape is a replica's tensor and Shard what one core holds of it.
	Shape []int `json:"shape"`
	Shard []int `json:"shard"`
	// PerReplica tensors differ between replicas; others are the same on each.
	PerReplica bool `json:"per_replica"`
	// Annotation says how it is laid over the logical devices, as it was written,
	// and Spec how over the mesh.
	Annotation string `json:"annotation"`
	Spec       string `json:"spec"`
	// BytesPerCore is what each core holds, TotalBytes one replica's tensor.
	BytesPerCore int64 `json:"bytes_per_core"`
	TotalBytes   int64 `json:"total_bytes"`
	// Copies is the number of logical devices that hold each element.
	Copies int `json:"copies"`
	// Donated says that a result takes over its memory.
	Donated bool `json:"donated,omitempty"`
	// Starts are the first indices of the part that each logical device holds;
	// none where each holds the whole.
	Starts [][]int `json:"starts,omitempty"`
}

// Cost is an estimate of one run, and what follows from it. What is in a loop counts
// as often as the loop runs, where that is known; a note says where it is not, and
// such a loop counts as one round.
type Cost struct {
	// FLOPs and BytesAccessed are one core's: the compiler's account, which counts
	// each loop once, and the other rounds of its loops by the optimized program.
	// They are negative if the compiler gives none.
	FLOPs         float64 `json:"flops_per_core"`
	BytesAccessed float64 `json:"bytes_accessed_per_core"`
	// RooflineSeconds is the least time of one core's operations one after another:
	// of each the more of its arithmetic at the target's published peak and its
	// traffic with the main memory at the published rate. It is not the time of a
	// step: operations rarely reach the peak, some run side by side, and those whose
	// time is not known, collectives, transfers and kernels, are left out. It is 0
	// where the peak, the rate or the optimized program is not known.
	RooflineSeconds float64 `json:"roofline_seconds,omitempty"`
	// Untimed is how many operations of a step RooflineSeconds leaves out.
	Untimed int `json:"untimed_operations,omitempty"`
	// FloorSeconds is the least time of the same operations all at once: the more of
	// their arithmetic at the peak and their traffic with the main memory at the rate;
	// 0 if these are not known.
	FloorSeconds float64 `json:"floor_seconds,omitempty"`
	// ModelFLOPs counts the matrix products and convolutions of the step as it
	// was written, on all replicas: what the model asks for, without what
	// splitting it adds.
	ModelFLOPs float64 `json:"model_flops"`
	// Utilization is ModelFLOPs over what all cores can do at their published peak in
	// RooflineSeconds, or in FloorSeconds where there is none: more than a run
	// reaches. It is 0 if one of these is not known.
	Utilization float64 `json:"model_flops_utilization,omitempty"`
}

// Input is what a report is made from.
type Input struct {
	// Step is the step's name.
	Step   string
	Target Target
	// Replicas and LogicalDevices are R and P; 0 means 1.
	Replicas, LogicalDevices int
	// Program is the compiled program, which stays the caller's.
	Program *pjrt.Executable
	// Module is the step as it was assembled; nil for a program from elsewhere,
	// whose StableHLO is then Text.
	Module *module.Module
	Text   []byte
	// Variables says which arguments of the module are variables.
	Variables                         []bool
	LoweringSeconds, CompilingSeconds float64
}

// New makes the report of a compiled program. What the plugin cannot say is left
// out, with a note; errors are those of the plugin, or match [ErrProgram] for an
// optimized program that cannot be read.
func New(in Input) (*Report, error) {
	r := &Report{
		Version: FormatVersion, Step: in.Step, Target: in.Target,
		Replicas: max(in.Replicas, 1), LogicalDevices: max(in.LogicalDevices, 1),
		Tensors: []Tensor{}, Collectives: []Collective{},
		LoweringSeconds: in.LoweringSeconds, CompilingSeconds: in.CompilingSeconds,
	}
	if in.Module != nil {
		r.Mesh = in.Module.Mesh.String()
		in.Text = in.Module.Text
		if err := r.addTensors(in.Module, in.Variables); err != nil {
			return nil, err
		}
	}
	if err := r.addMemory(in.Program); err != nil {
		return nil, err
	}
	program, err := r.optimized(in.Program)
	if err != nil {
		return nil, err
	}
	r.addCollectives(program)
	if err := r.addCost(in.Program, program, in.Text, in.Module != nil); err != nil {
		return nil, err
	}
	return r, nil
}

func (r *Report) note(format string, args ...any) {
	r.Notes = append(r.Notes, fmt.Sprintf(format, args...))
}

func (r *Report) addTensors(m *module.Module, variables []bool) error {
	add := func(role string, p module.Placed) error {
		copies, err := sharding.ReplicationFactor(m.Mesh, p.Spec)
		if err != nil {
			return fmt.Errorf("report: %s %q: %w", role, p.Name, err)
		}
		if !p.PerReplica {
			copies /= r.Replicas
		}
		t := Tensor{
			Role: role, Name: p.Name, DType: p.DType.String(), Shape: nonNil(p.Local), Shard: nonNil(p.Shard),
			PerReplica: p.PerReplica, Annotation: p.Annotation.String(), Spec: p.Spec.String(),
			BytesPerCore: int64(p.DType.Size()) * product(p.Shard), TotalBytes: int64(p.DType.Size()) * product(p.Local),
			Copies: max(copies, 1), Donated: p.Donated,
		}
		for device := 0; device < r.LogicalDevices && t.Copies < r.LogicalDevices; device++ {
			// The first devices of the mesh are replica 0's.
			ranges, err := sharding.IndexRanges(m.Mesh, p.Spec, p.Global, device)
			if err != nil {
				return fmt.Errorf("report: %s %q: %w", role, p.Name, err)
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
		return fmt.Errorf("report: %w", err)
	}
	m := Memory{
		Arguments: stats.Arguments, Outputs: stats.Outputs, Temporaries: stats.Temp, Aliased: stats.Alias, Code: stats.GeneratedCode,
		Peak: stats.Peak, Limit: r.Target.HBMBytes, Verdict: Unknown,
	}
	m.Total = m.Arguments + m.Outputs - m.Aliased + m.Temporaries + m.Code
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
	r.Memory = m
	return nil
}

// optimized reads the optimized program; nil, with a note, if there is none to read.
func (r *Report) optimized(p *pjrt.Executable) (*hloModule, error) {
	program, err := p.OptimizedProgram()
	if errors.Is(err, errors.ErrUnsupported) {
		r.note("the plugin does not give the optimized program, so the collectives are not known, and what is in loops counts once")
		return nil, nil
	} else if err != nil {
		return nil, fmt.Errorf("report: %w", err)
	}
	m, err := parseProgram(program)
	if errors.Is(err, errors.ErrUnsupported) {
		r.note("the optimized program is in a form that is not read (%s), so the collectives are not known, and what is in loops counts once", program.Format)
		return nil, nil
	}
	return m, err
}

func (r *Report) addCollectives(m *hloModule) {
	if m == nil {
		return
	}
	if all := m.collectives(r.Replicas, r.LogicalDevices); all != nil {
		r.Collectives = all
	}
	if slices.ContainsFunc(r.Collectives, func(c Collective) bool { return c.InLoop }) {
		r.note("some collectives are in a loop whose number of rounds is not known; they are counted for one round")
	}
}

// Largest returns the tensors of a role, or of all if it is empty, with the most
// bytes per core first.
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

// CollectiveBytes sums the bytes that collectives along an axis take and move: see
// [Collective].
func (r *Report) CollectiveBytes(axis string) (bytes, moved int64) {
	for _, c := range r.Collectives {
		if c.Axis == axis {
			bytes += c.Bytes
			moved += c.Moved
		}
	}
	return bytes, moved
}
