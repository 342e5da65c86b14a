package report

import (
	"bytes"
	"errors"
	"fmt"
	"strings"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/internal/protoint"
	"github.com/tpustrategy/tpustrategy/lowering/ir"
	"github.com/tpustrategy/tpustrategy/pjrt"
)

// ErrProgram matches the error for an optimized program that cannot be read.
var ErrProgram = errkind.New(errkind.ValueError, "report: malformed program")

// An optimized program is an HloModuleProto. These types contain the parts of its messages that the
// report needs. Field numbers are from xla/service/hlo.proto and xla/xla_data.proto.

// hloModule is a program: its computations by id, and the id of the entry computation.
type hloModule struct {
	computations map[uint64]*hloComputation
	entry        uint64
	// devices are the ids of the devices that run the partitions, replica by replica. It is empty
	// if the program does not contain them.
	devices []int
	// donated maps the index of an array of the result to the parameter whose memory it reuses.
	donated map[int]uint64
	// origins are the origins of the numbered statements of the step, or nil if they are unknown.
	origins []*ir.Origin
	// byLine are the collectives by origin, after they are counted.
	byLine map[lineKey]*Collective
}

type hloComputation struct {
	instructions []*hloInstruction
	byID         map[uint64]*hloInstruction
	parameters   map[uint64]*hloInstruction // by index
	root         uint64
	uses         map[uint64][]use // by value; computed on first use
}

type hloInstruction struct {
	id     uint64
	name   string
	opcode string
	source string // the name that the step gave it
	// origin is the origin of the instruction. parts are the origins of the instructions inside,
	// see locate.
	origin   *ir.Origin
	parts    []part
	shape    hloShape
	operands []uint64
	called   []uint64
	groups   [][]int
	pairs    [][2]int
	// trips is the number of iterations of a loop according to the compiler, or 0 if it is unknown.
	trips int
	// cycles is the compiler's estimate of a core's cycles, or 0 if there is none.
	cycles int64
	// oneRing is set if the compiler runs a collective as one ring, whatever the axes of its group.
	oneRing bool
	// index is the index of a get-tuple-element. number is the index of a parameter. direction is
	// the direction of a comparison, such as LT. target is the target of a custom call.
	index, number     uint64
	direction, target string
	// scalar is the value of an integer constant of one element.
	scalar    int64
	hasScalar bool
	// product describes the contraction of a matrix product or a convolution.
	product hloProduct
	// host is set for a send to the host. slices is set if the host forwards the data to another
	// slice. exchange is the collective that the hosts run on the way, such as ALL_REDUCE.
	host, slices bool
	exchange     string
	// unreadable is set for groups in an unsupported format.
	unreadable bool
}

// parseProgram parses an optimized program.
func parseProgram(p pjrt.Program) (*hloModule, error) {
	module := p.Code
	switch p.Format {
	case pjrt.FormatHLO:
	case pjrt.FormatHLOWithConfig:
		module = nil
		if err := decode(p.Code, protoint.Scanner{1: &module}); err != nil {
			return nil, err
		}
	default:
		return nil, &errkind.Fault{Op: "report: read the optimized program", Reason: fmt.Sprintf("it has the format %q", p.Format), Match: errors.ErrUnsupported}
	}
	m := &hloModule{computations: map[uint64]*hloComputation{}}
	order := map[uint64][]uint64{}
	err := decode(module, protoint.Scanner{
		3: func(b []byte) error {
			id, c, err := parseComputation(b)
			m.computations[id] = c
			return err
		},
		6: &m.entry, 7: func(b []byte) error { return parseSchedule(b, order) }, 8: m.parseDonated, 15: one(&m.devices, parseAssignment),
	})
	if err != nil {
		return nil, err
	}
	if m.computations[m.entry] == nil {
		return nil, malformed(nil, "it has no entry computation")
	}
	for id, sequence := range order {
		m.computations[id].schedule(sequence)
	}
	return m, nil
}

func parseComputation(b []byte) (id uint64, c *hloComputation, err error) {
	c = &hloComputation{byID: map[uint64]*hloInstruction{}, parameters: map[uint64]*hloInstruction{}}
	err = decode(b, protoint.Scanner{2: each(&c.instructions, parseInstruction), 5: &id, 6: &c.root})
	for _, i := range c.instructions {
		c.byID[i.id] = i
		if i.opcode == "parameter" {
			c.parameters[i.number] = i
		}
	}
	return id, c, err
}

func parseInstruction(b []byte) (*hloInstruction, error) {
	i := &hloInstruction{}
	p := &i.product
	err := decode(b, protoint.Scanner{
		1: &i.name, 2: &i.opcode, 3: one(&i.shape, func(b []byte) (hloShape, error) { return parseShape(b, 0) }),
		7: protoint.Scanner{2: &i.source}, 9: &i.number, 13: &i.index, 28: &i.target, 35: &i.id, 36: &i.operands, 38: &i.called, 63: &i.direction,
		8: func(b []byte) (err error) {
			i.scalar, i.hasScalar, err = parseScalar(b)
			return err
		},
		15: protoint.Scanner{1: each(&p.window, parseWindowDim)},
		16: protoint.Scanner{7: &p.inputBatch, 8: &p.inputFeature, 10: &p.outputFeature, 6: &p.kernelSpatial, 11: &p.inputSpatial, 12: &p.outSpatial},
		30: protoint.Scanner{1: &p.contracting}, 50: &p.featureGroups, 61: &p.batchGroups,
		43: func(config []byte) error {
			i.trips, i.cycles = tripCount(config), estimatedCycles(config)
			i.oneRing = bytes.Contains(config, oneRingEmitter)
			return nil
		},
		47: &i.host,
		68: func(attributes []byte) error {
			i.slices = bytes.Contains(attributes, []byte(slicesHandler))
			i.exchange = exchangeOf(attributes)
			return nil
		},
		52: each(&i.pairs, parsePair),
		// The formats of groups: a list, an iota in newer programs, and a mesh.
		49: each(&i.groups, parseGroup), 87: one(&i.groups, parseDeviceList), 92: one(&i.groups, parseIota),
		93: func(b []byte) (err error) {
			i.groups, err = parseMeshGroups(b)
			i.unreadable = i.groups == nil
			return err
		},
	})
	i.source = strings.ToValidUTF8(i.source, "\ufffd")
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
