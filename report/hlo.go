package report

import (
	"bytes"
	"errors"
	"fmt"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/lowering/ir"
	"github.com/tpustrategy/tpustrategy/pjrt"
)

// ErrProgram matches the error of an optimized program that cannot be read.
var ErrProgram = errkind.New(errkind.ValueError, "report: malformed program")

// The program that a compiler hands back is an HloModuleProto. Of its messages these types keep
// what collectives are told by. Field numbers are from xla/service/hlo.proto and
// xla/xla_data.proto.

// hloModule is a program: its computations by id, and the one that runs.
type hloModule struct {
	computations map[uint64]*hloComputation
	entry        uint64
	// devices are the ids of the devices that partitions run on, those of a replica together; empty if
	// the program does not say.
	devices []int
	// donated says which parameter's memory a result takes, by the number of the result's array.
	donated map[int]uint64
	// origins are those of the statements of the step; nil if they are not known.
	origins []*ir.Origin
	// byLine are the collectives by where they come from, once they are counted.
	byLine map[lineKey]*Collective
}

type hloComputation struct {
	instructions []*hloInstruction
	byID         map[uint64]*hloInstruction
	parameters   map[uint64]*hloInstruction // by number
	root         uint64
	uses         map[uint64][]use // by value; made when first asked for
}

type hloInstruction struct {
	id     uint64
	name   string
	opcode string
	source string // what the step called it
	// origin is where it comes from, and parts are where what is in it does: see locate.
	origin   *ir.Origin
	parts    []part
	shape    hloShape
	operands []uint64
	called   []uint64
	groups   [][]int
	pairs    [][2]int
	// trips are the rounds of a loop that the compiler has noted; 0 without a note.
	trips int
	// cycles is the compiler's estimate of a core's cycles; 0 without one.
	cycles int64
	// oneRing says that the compiler runs a collective as one ring, whatever the axes of its group.
	oneRing bool
	// index is that of a get-tuple-element, number that of a parameter, direction a comparison's,
	// such as LT, and target a custom call's.
	index, number     uint64
	direction, target string
	// scalar is the value of an integer constant of one element.
	scalar    int64
	hasScalar bool
	// product is what a matrix product or a convolution sums over.
	product hloProduct
	// host says that a send is to the host, slices that it is the host which sends on to another
	// slice, and exchange what the hosts do on the way, such as ALL_REDUCE.
	host, slices bool
	exchange     string
	// unreadable are groups in a form that is not read.
	unreadable bool
}

// parseProgram reads an optimized program.
func parseProgram(p pjrt.Program) (*hloModule, error) {
	module := p.Code
	switch p.Format {
	case pjrt.FormatHLO:
	case pjrt.FormatHLOWithConfig:
		module = nil
		if err := fields(p.Code, func(n protowire.Number, v value) error {
			if n == 1 {
				module = v.bytes
			}
			return nil
		}); err != nil {
			return nil, err
		}
	default:
		return nil, &errkind.Fault{Op: "report: read the optimized program", Reason: fmt.Sprintf("it has the format %q", p.Format), Match: errors.ErrUnsupported}
	}
	m := &hloModule{computations: map[uint64]*hloComputation{}}
	order := map[uint64][]uint64{}
	err := fields(module, func(n protowire.Number, v value) (err error) {
		switch n {
		case 3:
			id, c, err := parseComputation(v.bytes)
			m.computations[id] = c
			return err
		case 6:
			m.entry = v.number
		case 7:
			return parseSchedule(v.bytes, order)
		case 8:
			err = m.parseDonated(v.bytes)
		case 15:
			m.devices, err = parseAssignment(v.bytes)
		}
		return err
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
	err = fields(b, func(n protowire.Number, v value) error {
		switch n {
		case 2:
			i, err := parseInstruction(v.bytes)
			if err != nil {
				return err
			}
			c.instructions = append(c.instructions, i)
			c.byID[i.id] = i
			if i.opcode == "parameter" {
				c.parameters[i.number] = i
			}
		case 5:
			id = v.number
		case 6:
			c.root = v.number
		}
		return nil
	})
	return id, c, err
}

func parseInstruction(b []byte) (*hloInstruction, error) {
	i := &hloInstruction{}
	err := fields(b, func(n protowire.Number, v value) error {
		var err error
		switch n {
		case 1:
			i.name = string(v.bytes)
		case 2:
			i.opcode = string(v.bytes)
		case 3:
			i.shape, err = parseShape(v.bytes, 0)
		case 7: // the metadata
			err = fields(v.bytes, func(n protowire.Number, v value) error {
				if n == 2 {
					i.source = strings.ToValidUTF8(string(v.bytes), "\ufffd")
				}
				return nil
			})
		case 8:
			i.scalar, i.hasScalar, err = parseScalar(v.bytes)
		case 9:
			i.number = v.number
		case 13:
			i.index = v.number
		case 15, 16, 30, 50, 61:
			err = i.product.parse(n, v)
		case 28:
			i.target = string(v.bytes)
		case 35:
			i.id = v.number
		case 36:
			i.operands, err = v.numbers(i.operands)
		case 38:
			i.called, err = v.numbers(i.called)
		case 43:
			i.trips, i.cycles = tripCount(v.bytes), estimatedCycles(v.bytes)
			i.oneRing = bytes.Contains(v.bytes, oneRingEmitter)
		case 47:
			i.host = v.number != 0
		case 49:
			var group []int
			group, err = parseGroup(v.bytes)
			i.groups = append(i.groups, group)
		case 52:
			var pair [2]int
			err = fields(v.bytes, func(n protowire.Number, v value) error {
				if (n == 1 || n == 2) && v.number < maxDevices {
					pair[n-1] = int(v.number)
				}
				return nil
			})
			i.pairs = append(i.pairs, pair)
		case 63:
			i.direction = string(v.bytes)
		case 68:
			i.slices = bytes.Contains(v.bytes, []byte(slicesHandler))
			i.exchange = exchangeOf(v.bytes)
		case 87:
			i.groups, err = parseDeviceList(v.bytes)
		case 92: // the iota of a device list, on its own in newer programs
			i.groups, err = parseIota(v.bytes)
		case 93:
			i.groups, err = parseMeshGroups(v.bytes)
			i.unreadable = i.groups == nil
		}
		return err
	})
	return i, err
}
