package cost

import "github.com/tpustrategy/tpustrategy/report/hlo"

// Operation is one operation in the schedule of a program.
type Operation struct {
	// Number is the position of the operation. The operations of a loop follow the loop and are
	// numbered for one iteration.
	Number int `json:"number"`
	// Name is the compiler's name. Operation is the compiler's opcode. Source is the name of the
	// original operation in the step. Layer is the part of the model that the operation belongs to.
	// Each is empty if it is unknown, as for joined operations.
	Name      string `json:"name,omitempty"`
	Operation string `json:"operation,omitempty"`
	Source    string `json:"source,omitempty"`
	Layer     string `json:"layer,omitempty"`
	// Line is the number in the lines of a report, from 1, of the line with the largest share of the
	// operation, or 0 if it is unknown.
	Line int `json:"line,omitempty"`
	// Joined is the number of operations that are joined in this entry, or 0 for a single
	// operation.
	Joined int `json:"joined,omitempty"`
	// Start is the predicted time since the start of the step, or since the start of an iteration
	// of the enclosing loop.
	Start float64 `json:"start_seconds,omitempty"`
	// CoreTime of a loop is the time of all iterations.
	CoreTime
	// Beside is the transfer that the operation starts.
	Beside *Transfer `json:"beside,omitempty"`
	// InUse is the main memory in use while the operation runs. For a loop it is the maximum.
	InUse int64 `json:"in_use_bytes"`
	// Iterations is the number of iterations of a loop, and 0 for other operations. Inside are the
	// operations of one iteration.
	Iterations int         `json:"rounds,omitempty"`
	Inside     []Operation `json:"inside,omitempty"`

	// Instruction is the instruction of the program, or nil in a report.
	Instruction *hlo.Instruction `json:"-"`
}

// CoreTime is the predicted time during which a core is occupied, divided into the categories of a
// [Prediction]. Interconnect and Network only include the time that other operations do not hide.
type CoreTime struct {
	Products     float64 `json:"products_seconds,omitempty"`
	Memory       float64 `json:"memory_seconds,omitempty"`
	Interconnect float64 `json:"interconnect_seconds,omitempty"`
	Network      float64 `json:"network_seconds,omitempty"`
}

// Seconds returns the total time.
func (t CoreTime) Seconds() float64 { return t.Products + t.Memory + t.Interconnect + t.Network }

// Add adds o, multiplied by n.
func (t *CoreTime) Add(o CoreTime, n float64) {
	t.Products, t.Memory = bounded(t.Products+n*o.Products), bounded(t.Memory+n*o.Memory)
	t.Interconnect, t.Network = bounded(t.Interconnect+n*o.Interconnect), bounded(t.Network+n*o.Network)
}

// Transfer is an asynchronous operation that runs concurrently with a core.
type Transfer struct {
	// On is "interconnect", "network" or, between the memories of a chip, "transfers".
	On string `json:"on"`
	// Start is relative to the same time as the Start of an [Operation].
	Start   float64 `json:"start_seconds"`
	Seconds float64 `json:"seconds"`
}
