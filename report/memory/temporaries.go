package memory

import (
	"cmp"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/tpustrategy/tpustrategy/lowering/ir"
)

// Temporary describes one or more equal values that the optimized program stores in a core's main
// memory between operations. Arguments and results of the step are not temporaries. Not all
// temporaries are live at the same time.
type Temporary struct {
	// Operation is the compiler's opcode, such as "fusion". Source is the name of the original
	// operation in the step, or empty.
	Operation string `json:"operation"`
	Source    string `json:"source,omitempty"`
	DType     string `json:"dtype"`
	Shape     []int  `json:"shape"`
	// Bytes is the size of one value on a core, without padding. Count is the number of values.
	Bytes int64 `json:"bytes"`
	Count int   `json:"count"`
	// Line is the line of Go of the value, or nil if it is unknown.
	Line *SourceLine `json:"line,omitempty"`
}

// String returns the value as "f32[4096 128]".
func (t Temporary) String() string { return fmt.Sprintf("%s%v", t.DType, t.Shape) }

// The limits of a list of temporaries: their number, and the minimum size in bytes.
const MaxTemporaries, MinTemporaryBytes = 10, 1 << 10

// SourceLine is a line of Go of a step.
type SourceLine struct {
	// File is a Go file with the import path of its package, and Line the line that called the
	// operations. A gradient has the line of the original operation. An operation of a library,
	// such as an optimizer, has the line of the value that it uses, or its own line.
	File string `json:"file,omitempty"`
	Line int    `json:"line,omitempty"`
	// Function is the function that contains the line. Call is the function that the line calls.
	Function string `json:"function,omitempty"`
	Call     string `json:"call,omitempty"`
	// Layer is the scope of the variables that the operations depend on. Pass is "forward",
	// "backward" or "update".
	Layer string `json:"layer,omitempty"`
	Pass  string `json:"pass,omitempty"`
}

// NewSourceLine returns the source line of an origin, or nil if the origin is nil.
func NewSourceLine(o *ir.Origin) *SourceLine {
	if o == nil {
		return nil
	}
	return &SourceLine{File: o.File, Line: o.Line, Function: o.Function, Call: o.Call, Layer: strings.TrimPrefix(o.Layer,
		"/"), Pass: o.Pass.String()}
}

// String returns the line as "decoder/model.go:65", or "not known".
func (l SourceLine) String() string {
	if l.File == "" {
		return "not known"
	}
	folder := path.Base(path.Dir(l.File))
	return strings.TrimPrefix(path.Join(folder, path.Base(l.File)), "./") + ":" + strconv.Itoa(l.Line)
}

// The allocations that the TPU compiler lists when it rejects a program.
var (
	allocation       = regexp.MustCompile(`(?s)[0-9]+\. Size: ([0-9.]+[KMGT]?)\b(.*?)={5}`)
	allocationName   = regexp.MustCompile(`op_name="([^"]*)"`)
	allocationShape  = regexp.MustCompile(`Shape: ([a-z0-9]+)\[([0-9,]*)\]`)
	allocationOpcode = regexp.MustCompile(`XLA label: %?([a-z-]+)`)
)

// Temporaries returns the temporaries that the compiler's error lists, the largest first. If the
// error lists none, Temporaries returns the largest results of products, gathers and similar
// operations in the StableHLO text of the step, with their sizes in one replica. origins are the
// origins of the step's statements.
func (r *Refusal) Temporaries(text []byte, origins []*ir.Origin) (all []Temporary) {
	for _, match := range allocation.FindAllStringSubmatch(r.Log, MaxTemporaries) {
		if !strings.Contains(match[2], "HLO temp") {
			continue
		}
		t := Temporary{Bytes: parseBytes(match[1]), Count: 1, Operation: "operation"}
		if opcode := allocationOpcode.FindStringSubmatch(match[2]); opcode != nil {
			t.Operation = opcode[1]
		}
		if name := allocationName.FindStringSubmatch(match[2]); name != nil {
			t.Source = name[1]
			t.Line = NewSourceLine(ir.OriginOf(t.Source, origins))
		}
		if shape := allocationShape.FindStringSubmatch(match[2]); shape != nil {
			t.DType, t.Shape = shape[1], parseDims(shape[2], ",")
		}
		all = append(all, t)
	}
	if all == nil {
		all = textTemporaries(text, origins)
	}
	slices.SortStableFunc(all, func(a, b Temporary) int { return cmp.Compare(b.Bytes, a.Bytes) })
	return all[:min(len(all), MaxTemporaries)]
}

// parseDims parses dimensions that a regular expression has already validated.
func parseDims(text, separator string) (dims []int) {
	for dim := range strings.SplitSeq(text, separator) {
		if n, err := strconv.Atoi(dim); err == nil {
			dims = append(dims, n)
		}
	}
	return dims
}

// textResult matches an operation of StableHLO whose result compilers write to main memory: the
// dimensions of its last result, the prefix and the bits of the dtype, its name and the operation.
var textResult = regexp.MustCompile(`tensor<((?:[0-9]{1,15}x)+)(bf|f|i|ui)([0-9]{1,3})>\)? ` +
	`loc\("((dot_general|convolution|gather|scatter|concatenate|sort)[a-z_]*` + ir.NumberSeparator + `[0-9]+)"\)`)

// textTemporaries returns the largest results of products, gathers and similar operations in a
// StableHLO text. Equal values are merged into one entry with a count.
func textTemporaries(text []byte, origins []*ir.Origin) (all []Temporary) {
	index := map[string]int{}
	for _, match := range textResult.FindAllSubmatch(text, -1) {
		t := Temporary{
			Operation: string(match[5]), Source: string(match[4]), DType: string(match[2]) + string(match[3]),
			Shape: parseDims(string(match[1]), "x"), Count: 1,
		}
		bits, _ := strconv.Atoi(string(match[3]))
		if t.Bytes = sizeOf(t.Shape, bits); t.Bytes < MinTemporaryBytes {
			continue
		}
		key := t.Source + t.String()
		if i, known := index[key]; known {
			all[i].Count++
			continue
		}
		t.Line = NewSourceLine(ir.OriginOf(t.Source, origins))
		index[key] = len(all)
		all = append(all, t)
	}
	return all
}

// sizeOf returns the size of an array in bytes, or 0 if the dimensions are invalid.
func sizeOf(dims []int, bits int) int64 {
	for _, d := range dims {
		if d == 0 || bits > 1<<50/d {
			return 0
		}
		bits *= d
	}
	return (int64(bits) + 7) / 8
}
