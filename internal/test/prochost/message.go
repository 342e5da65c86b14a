package prochost

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/pjrt"
)

// Operations of requests.
const (
	opHello   = "hello"
	opJoin    = "join"
	opCompile = "compile"
	opRelease = "release"
	opExecute = "execute"
	opCancel  = "cancel"
	opPing    = "ping"
	opClose   = "close"
)

// request is the header of a frame that a host sends. The body contains the program or the
// arguments.
type request struct {
	ID uint64
	Op string

	Hello   *hello        `json:",omitempty"`
	Program *programs     `json:",omitempty"`
	Launch  *launchHeader `json:",omitempty"`
	// Executable is the program to release.
	Executable int `json:",omitempty"`
	// Cancel is the ID of a request to cancel. Deadline reports that the deadline of that request
	// has passed.
	Cancel   uint64 `json:",omitempty"`
	Deadline bool   `json:",omitempty"`
}

// reply is the header of a frame that the machine sends. The body contains the results.
type reply struct {
	ID    uint64
	Error *wireError `json:",omitempty"`

	Welcome  *welcome  `json:",omitempty"`
	Compiled *compiled `json:",omitempty"`
}

// hello is the first request of a host.
type hello struct {
	Run                string
	Process, Processes int
}

// welcome describes the machine. It answers hello.
type welcome struct {
	Platform  string
	Devices   int
	MeshShape []int
	Name      string
	Patience  time.Duration
	MaxBytes  int64
}

// programs contains the format and the compile options of a program.
type programs struct {
	Format               string
	Replicas, Partitions int
	DeviceAssignment     [][]int
	SPMD, Shardy         bool
	DumpDir              string     `json:",omitempty"`
	Overrides            []override `json:",omitempty"`
}

// override is a compiler option. Type distinguishes integers from other numbers, which JSON does
// not.
type override struct{ Name, Type, Value string }

// compiled describes a compiled program to the host.
type compiled struct {
	Executable int
	Devices    []int // IDs of the host's devices of the program, in launch order
	Outputs    []tensor
}

// tensor is the type of an argument or result on one device.
type tensor struct {
	Type pjrt.DType
	Dims []int
}

// launchHeader describes a launch. Arguments are the argument types of each of the host's devices.
type launchHeader struct {
	Executable int
	Arguments  []tensor
	Donate     []bool `json:",omitempty"`
	LaunchID   int    `json:",omitempty"`
}

// bytes returns the size of a tensor in host memory.
func (t tensor) bytes() (int, error) {
	n := t.Type.HostBytes()
	if n == 0 {
		return 0, fault("frame", errkind.InvalidArgumentError, "a tensor of type %v cannot be sent", t.Type)
	}
	if slices.Contains(t.Dims, 0) {
		n = 0
	}
	for _, d := range t.Dims {
		if d < 0 || d > 0 && n > math.MaxInt/d {
			return 0, fault("frame", errkind.InvalidArgumentError, "a tensor of dimensions %v cannot be sent", t.Dims)
		}
		n *= d
	}
	return n, nil
}

// split splits a body into the bytes of each tensor of each device.
func split(body []byte, devices int, tensors []tensor) ([][][]byte, error) {
	out := make([][][]byte, devices)
	rest := body
	for d := range out {
		out[d] = make([][]byte, len(tensors))
		for i, t := range tensors {
			n, err := t.bytes()
			if err != nil {
				return nil, err
			}
			if n > len(rest) {
				return nil, fault("frame", errkind.InvalidArgumentError, "%d bytes are too few for %d devices of %d tensors",
					len(body), devices, len(tensors))
			}
			out[d][i], rest = rest[:n:n], rest[n:]
		}
	}
	if len(rest) > 0 {
		return nil, fault("frame", errkind.InvalidArgumentError, "%d bytes are %d too many for %d devices of %d tensors",
			len(body), len(rest), devices, len(tensors))
	}
	return out, nil
}

// newPrograms encodes compile options.
func newPrograms(format string, o pjrt.CompileOptions) (*programs, error) {
	p := &programs{Format: format, Replicas: o.Replicas, Partitions: o.Partitions, DeviceAssignment: o.DeviceAssignment,
		SPMD: o.SPMD, Shardy: o.Shardy, DumpDir: o.DumpDir}
	if err := pjrt.CheckOverrides(o.Overrides); err != nil {
		return nil, err
	}
	for name, value := range o.Overrides {
		v := override{Name: name, Type: fmt.Sprintf("%T", value), Value: fmt.Sprint(value)}
		if f, ok := value.(float64); ok {
			v.Value = strconv.FormatFloat(f, 'x', -1, 64)
		}
		p.Overrides = append(p.Overrides, v)
	}
	slices.SortFunc(p.Overrides, func(a, b override) int { return strings.Compare(a.Name, b.Name) })
	return p, nil
}

// options decodes the compile options.
func (p *programs) options() (pjrt.CompileOptions, error) {
	o := pjrt.CompileOptions{Replicas: p.Replicas, Partitions: p.Partitions, DeviceAssignment: p.DeviceAssignment,
		SPMD: p.SPMD, Shardy: p.Shardy, DumpDir: p.DumpDir}
	for _, v := range p.Overrides {
		var value any
		var err error
		switch v.Type {
		case "string":
			value = v.Value
		case "bool":
			value, err = strconv.ParseBool(v.Value)
		case "int", "int64":
			value, err = strconv.ParseInt(v.Value, 10, 64)
		case "float64":
			value, err = strconv.ParseFloat(v.Value, 64)
		default:
			err = fault("compile", errkind.InvalidArgumentError, "type %q", v.Type)
		}
		if err != nil {
			return o, &errkind.Fault{Op: "prochost: compile", Subject: fmt.Sprintf("option %q", v.Name), Err: err,
				Class: errkind.InvalidArgumentError}
		}
		if o.Overrides == nil {
			o.Overrides = map[string]any{}
		}
		o.Overrides[v.Name] = value
	}
	return o, nil
}
