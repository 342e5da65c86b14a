package hlo

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/internal/protoint"
	"github.com/tpustrategy/tpustrategy/lowering/ir"
	"github.com/tpustrategy/tpustrategy/lowering/spmd"
	"github.com/tpustrategy/tpustrategy/pjrt"
)

// ErrProgram matches the error for an optimized program that cannot be read.
var ErrProgram = errkind.New(errkind.ValueError, "report: malformed program")

func malformed(cause error, format string, args ...any) error {
	return &errkind.Fault{Match: ErrProgram, Reason: fmt.Sprintf(format, args...), Err: cause,
		Hint: "compile with another version of the plugin"}
}

// Program is an optimized program, an HloModuleProto. Field numbers in this package are from
// xla/service/hlo.proto and xla/xla_data.proto.
type Program struct {
	// Entry is the computation that a run of the program executes.
	Entry *Computation
	// Devices are the ids of the devices that run the partitions, replica by replica. It is empty
	// if the program does not contain them.
	Devices []int
	// Donated maps the index of an array of the result to the number of the parameter whose memory
	// it reuses.
	Donated map[int]uint64
	// HasOrigins is set if the origins of the instructions are known.
	HasOrigins bool
	// Truncated is set if the program is too large to be analyzed completely. The FLOPs and bytes of
	// its instructions are then incomplete.
	Truncated bool

	computations map[uint64]*Computation // by id
	ordered      []*Computation          // compilers write called computations first
}

// Computation is a list of instructions, such as the body of a loop.
type Computation struct {
	// Instructions are in the order of execution, if the program contains it.
	Instructions []*Instruction
	// Root is the instruction that computes the result, or nil if it is missing.
	Root *Instruction

	byID, parameters map[uint64]*Instruction
	root             uint64
	measured         bool
}

// Instruction is an operation of a computation.
type Instruction struct {
	// ID is unique in a valid computation.
	ID   uint64
	Name string
	// Opcode is the name of the operation in XLA, such as "all-reduce-start". Collective is the kind
	// of a collective, such as "all-reduce", and empty for other operations.
	Opcode, Collective string
	// Source is the name that the step gave the operation.
	Source string
	// Origin is the origin of the instruction, or nil if it is unknown. Parts divide the instruction
	// among the origins of the operations that it consists of. Parts is empty unless
	// [Program].HasOrigins is set.
	Origin *ir.Origin
	Parts  []Part
	// Arrays are the arrays of the result, which is one array unless IsTuple is set. Bytes is the sum
	// of their sizes without padding.
	Arrays  []Array
	IsTuple bool
	Bytes   int64
	// Operands and Called are the operands and the called computations. An element is nil if the
	// program does not contain it. Readers is the number of operands that are this instruction.
	Operands []*Instruction
	Called   []*Computation
	Readers  int
	// First is the index, among the arrays of the first operand, of the first array that a
	// get-tuple-element or the end of an asynchronous operation returns.
	First int
	// Updated contains, for each array of a fusion's result, the index of the operand that the
	// fusion updates in place, or -1.
	Updated []int
	// Groups are the partitions or replicas of each group of a collective. UnknownGroups is set if
	// their format is not supported. Pairs are the senders and receivers of a permutation.
	Groups        [][]int
	UnknownGroups bool
	Pairs         [][2]int
	// OneRing is set if the compiler runs a collective as one ring, whatever the axes of its group.
	OneRing bool
	// Iterations is the number of iterations of a loop, if HasIterations is set.
	Iterations    int
	HasIterations bool
	// Number is the index of a parameter. Target is the target of a custom call.
	Number uint64
	Target string
	// Host is set for a transfer to or from the host. BetweenSlices is set if the host forwards the
	// data to another slice. HostCollective is the collective that the hosts then run, such as
	// ALL_REDUCE.
	Host, BetweenSlices bool
	HostCollective      string
	// Free is set for an operation without work, or whose work its start includes.
	Free bool
	// Cycles is the compiler's estimate of a core's cycles, or 0 if there is none.
	Cycles int64
	// FLOPs is the number of arithmetic operations. BytesAccessed is the number of bytes read and
	// written, and MainBytes the number of these in main memory. They are 0 for instructions in
	// fusions.
	FLOPs, BytesAccessed, MainBytes float64
	// Inside are the matrix products, convolutions and collectives in a fusion. For another
	// operation, Inside contains the operation if it is one of these.
	Inside []*Instruction

	shape                hloShape
	operandIDs, calledID []uint64
	uses                 []use
	index                uint64 // of a get-tuple-element
	direction            string // of a comparison, such as LT
	scalar               int64  // value of an integer constant of one element
	hasScalar            bool
	product              product
}

// Array is an array in the result of an instruction. If the result is a tuple, it contains several
// arrays.
type Array struct {
	// DType is the XLA name of the element type, such as "f32", or empty if it is unknown.
	DType string
	Dims  []uint64
	// Memory is the memory space of the array. 0 is the main memory of a device, and 1 is the fast
	// memory of a TPU core.
	Memory uint64
	// Bytes is the size without padding, and PaddedBytes the size in memory, with the dimensions
	// padded to tiles.
	Bytes, PaddedBytes int64
	// Origin is the origin of the array, or nil if it is unknown.
	Origin *ir.Origin
	// Results are the indices of the arrays of the computation's result that are this array.
	Results []int
}

type use struct {
	by      *Instruction
	operand int
}

// Parse parses an optimized program, or a program that is partitioned and not yet scheduled. If m
// is not nil, it is the step that was compiled, and Parse determines the origins of the
// instructions. kernels are the names of Go functions, such as attention, whose operations in m are
// executed by one kernel. Parse assigns the values between the operations of a kernel to fast
// memory, because a kernel does not write them to main memory.
//
// The error matches [ErrProgram] for a program that cannot be read, and errors.ErrUnsupported for
// other program formats.
func Parse(program pjrt.Program, m *spmd.Module, kernels ...string) (*Program, error) {
	module := program.Code
	switch program.Format {
	case pjrt.FormatHLO:
	case pjrt.FormatHLOWithConfig:
		module = nil
		if err := decode(program.Code, protoint.Scanner{1: &module}); err != nil {
			return nil, err
		}
	default:
		return nil, &errkind.Fault{Op: "report: read the optimized program", Reason: fmt.Sprintf("it has the format %q",
			program.Format), Match: errors.ErrUnsupported}
	}
	p := &Program{computations: map[uint64]*Computation{}}
	order := map[uint64][]uint64{}
	var entry uint64
	err := decode(module, protoint.Scanner{
		3: func(b []byte) error {
			id, c, err := parseComputation(b)
			p.computations[id] = c
			p.ordered = append(p.ordered, c)
			return err
		},
		6: &entry, 7: func(b []byte) error { return parseSchedule(b, order) }, 8: p.parseDonated,
		15: one(&p.Devices, parseAssignment),
	})
	if err != nil {
		return nil, err
	}
	if p.Entry = p.computations[entry]; p.Entry == nil {
		return nil, malformed(nil, "it has no entry computation")
	}
	for id, sequence := range order {
		p.computations[id].schedule(sequence)
	}
	p.resolve()
	if m != nil && (len(m.Origins) > 0 || len(kernels) > 0) {
		p.locate(m)
		for _, call := range kernels {
			p.keepInFastMemory(call)
		}
	}
	for _, c := range p.ordered {
		c.flatten()
	}
	p.measure(p.Entry, &analyzer{}, 0)
	return p, nil
}

func parseComputation(b []byte) (id uint64, c *Computation, err error) {
	c = &Computation{byID: map[uint64]*Instruction{}, parameters: map[uint64]*Instruction{}}
	err = decode(b, protoint.Scanner{2: each(&c.Instructions, parseInstruction), 5: &id, 6: &c.root})
	for _, i := range c.Instructions {
		c.byID[i.ID] = i
		if i.Opcode == "parameter" {
			c.parameters[i.Number] = i
		}
	}
	return id, c, err
}

func parseInstruction(b []byte) (*Instruction, error) {
	i := &Instruction{}
	d := &i.product
	trips := 0
	err := decode(b, protoint.Scanner{
		1: &i.Name, 2: &i.Opcode, 3: one(&i.shape, func(b []byte) (hloShape, error) { return parseShape(b, 0) }),
		7: protoint.Scanner{2: &i.Source}, 9: &i.Number, 13: &i.index, 28: &i.Target, 35: &i.ID, 36: &i.operandIDs,
		38: &i.calledID, 63: &i.direction,
		8: func(b []byte) (err error) {
			i.scalar, i.hasScalar, err = parseScalar(b)
			return err
		},
		15: protoint.Scanner{1: each(&d.window, parseWindowDim)},
		16: protoint.Scanner{7: &d.inputBatch, 8: &d.inputFeature, 10: &d.outputFeature, 6: &d.kernelSpatial,
			11: &d.inputSpatial, 12: &d.outSpatial},
		30: protoint.Scanner{1: &d.contracting}, 50: &d.featureGroups, 61: &d.batchGroups,
		43: func(config []byte) error {
			trips, i.Cycles = tripCount(config), estimatedCycles(config)
			i.OneRing = bytes.Contains(config, oneRingEmitter)
			return nil
		},
		47: &i.Host,
		68: func(attributes []byte) error {
			i.BetweenSlices = bytes.Contains(attributes, []byte(slicesHandler))
			i.HostCollective = hostCollective(attributes)
			return nil
		},
		52: each(&i.Pairs, parsePair),
		// The formats of groups: a list, an iota in newer programs, and a mesh.
		49: each(&i.Groups, parseGroup), 87: one(&i.Groups, parseDeviceList), 92: one(&i.Groups, parseIota),
		93: func(b []byte) (err error) {
			i.Groups, err = parseMeshGroups(b)
			i.UnknownGroups = i.Groups == nil
			return err
		},
	})
	i.Source = strings.ToValidUTF8(i.Source, "\ufffd")
	i.Collective = collectiveKinds[i.Opcode]
	i.Iterations, i.HasIterations = trips, trips > 0
	i.Free = slices.Contains(free, i.Opcode) || i.Opcode == "custom-call" && slices.Contains(freeCalls, i.Target)
	return i, err
}

func parsePair(b []byte) (pair [2]int, err error) {
	var from, to uint64
	err = decode(b, protoint.Scanner{1: &from, 2: &to})
	if max(from, to) < maxDevices {
		pair = [2]int{int(from), int(to)}
	}
	return pair, err
}

// resolve replaces the ids of instructions and computations by pointers, and determines the number
// of iterations of each loop.
func (p *Program) resolve() {
	for _, c := range p.ordered {
		c.Root = c.byID[c.root]
		for _, i := range c.Instructions {
			for k, id := range i.operandIDs {
				o := c.byID[id]
				i.Operands = append(i.Operands, o)
				if o != nil {
					o.uses = append(o.uses, use{i, k})
					o.Readers++
				}
			}
			for _, id := range i.calledID {
				i.Called = append(i.Called, p.computations[id])
			}
		}
	}
	for _, c := range p.ordered {
		for _, i := range c.Instructions {
			if i.Opcode == "while" && !i.HasIterations {
				i.Iterations, i.HasIterations = i.iterations()
			}
		}
	}
}

func (i *Instruction) operand(k int) *Instruction {
	if k >= len(i.Operands) {
		return nil
	}
	return i.Operands[k]
}

func (i *Instruction) operandShape(k int) hloShape {
	if o := i.operand(k); o != nil {
		return o.shape
	}
	return hloShape{}
}

func (i *Instruction) body() *Computation {
	if len(i.Called) != 1 {
		return nil
	}
	return i.Called[0]
}

// flatten sets the fields of the instructions that depend on their shapes, such as Bytes and
// Arrays.
func (c *Computation) flatten() {
	for _, i := range c.Instructions {
		i.Bytes, i.IsTuple = i.shape.bytes(), i.shape.elements != nil
		for _, s := range i.shape.arrays(nil) {
			i.Arrays = append(i.Arrays, Array{DType: elementNames[s.element], Dims: s.dims, Memory: s.memory, Bytes: s.bytes(),
				PaddedBytes: s.padded()})
		}
		for k := range i.Arrays {
			i.Arrays[k].Origin = i.arrayOrigin(k)
		}
		switch start := i.operand(0); {
		case start == nil || len(i.Operands) != 1:
		case i.Opcode == "get-tuple-element":
			i.First = start.shape.before(i.index)
		case i.Opcode != "copy-done" && strings.HasSuffix(i.Opcode, "-done") && start.Opcode != "all-reduce-start" &&
			start.Opcode != "recv" && len(start.shape.elements) > 1:
			i.First = start.shape.before(1)
		}
		i.Updated = i.updatedOperands()
	}
	if c.Root == nil {
		return
	}
	for k := range c.Root.Arrays {
		if at := (arrayRef{c.Root, k}).source(); at.array < len(at.of.Arrays) {
			at.of.Arrays[at.array].Results = append(at.of.Arrays[at.array].Results, k)
		}
	}
}

func (i *Instruction) updatedOperands() []int {
	c := i.body()
	if i.Opcode != "fusion" || c == nil || c.Root == nil {
		return nil
	}
	operands := make([]int, len(i.Arrays))
	for k := range operands {
		operands[k] = -1
		at := (arrayRef{c.Root, k}).source().of
		if at.Opcode != "dynamic-update-slice" || at.operand(0) == nil {
			continue
		}
		if of := (arrayRef{at.Operands[0], 0}).source().of; of.Opcode == "parameter" && of.Number < uint64(len(i.Operands)) {
			operands[k] = int(of.Number)
		}
	}
	return operands
}

type arrayRef struct {
	of    *Instruction
	array int
}

// source returns the array of the instruction that computes an array, which may be passed through
// tuples and views.
func (r arrayRef) source() arrayRef {
	for range maxDepth {
		switch i := r.of; i.Opcode {
		case "tuple":
			k, found := r.array, false
			for _, o := range i.Operands {
				if o == nil {
					return r
				}
				if n := o.shape.width(); k >= n {
					k -= n
					continue
				}
				r, found = arrayRef{o, k}, true
				break
			}
			if !found {
				return r
			}
		case "get-tuple-element":
			if len(i.Operands) != 1 || i.Operands[0] == nil {
				return r
			}
			r = arrayRef{i.Operands[0], r.array + i.Operands[0].shape.before(i.index)}
		case "bitcast", "opt-barrier", "copy-done":
			if len(i.Operands) != 1 || i.Operands[0] == nil {
				return r
			}
			r.of = i.Operands[0]
		default:
			return r
		}
	}
	return r
}
