package hlo

import (
	"slices"

	"github.com/tpustrategy/tpustrategy/internal/protoint"
)

// hloShape is the shape of an array or of a tuple. memory is the memory space of an array, which is
// 0 for the device's main memory. minor lists the dimensions in memory order, the fastest first. In
// main memory, the dimensions are padded to multiples of tile.
type hloShape struct {
	element     uint64
	dims        []uint64
	elements    []hloShape
	memory      uint64
	minor, tile []uint64
}

func parseShape(b []byte, depth int) (s hloShape, err error) {
	if depth > maxDepth {
		return s, malformed(nil, "tuples in tuples")
	}
	err = decode(b, protoint.Scanner{
		2: &s.element, 3: &s.dims, 4: each(&s.elements, func(b []byte) (hloShape, error) { return parseShape(b, depth+1) }),
		5: protoint.Scanner{1: &s.minor, 8: &s.memory, 6: func(b []byte) error {
			if s.tile != nil { // further tiles divide the first one
				return nil
			}
			return decode(b, protoint.Scanner{1: &s.tile})
		}},
	})
	return s, err
}

// parseScalar parses a LiteralProto with one integer.
func parseScalar(b []byte) (n int64, ok bool, err error) {
	var list []uint64
	err = decode(b, protoint.Scanner{4: &list, 5: &list, 6: &list, 7: &list}) // s32s, s64s, u32s or u64s
	if ok = len(list) == 1; ok {
		n = int64(list[0])
	}
	return n, ok, err
}

var elementBits = map[uint64]uint64{
	1: 8, 2: 8, 3: 16, 4: 32, 5: 64, 6: 8, 7: 16, 8: 32, 9: 64, 10: 16, 11: 32, 12: 64, 15: 64, 16: 16, 18: 128,
	19: 8, 20: 8, 21: 4, 22: 4, 23: 8, 24: 8, 25: 8, 26: 2, 27: 2, 28: 8, 29: 8, 30: 1, 31: 1, 32: 4, 33: 8,
}

// elementNames maps an xla.PrimitiveType of a collective to its name in programs.
var elementNames = map[uint64]string{
	1: "pred", 2: "s8", 3: "s16", 4: "s32", 5: "s64", 6: "u8", 7: "u16", 8: "u32", 9: "u64", 10: "f16", 11: "f32",
	12: "f64",
	15: "c64", 16: "bf16", 18: "c128", 19: "f8e5m2", 20: "f8e4m3fn", 21: "s4", 22: "u4", 23: "f8e4m3b11fnuz",
	24: "f8e5m2fnuz", 25: "f8e4m3fnuz", 26: "s2", 27: "u2", 28: "f8e4m3", 29: "f8e3m4", 30: "s1", 31: "u1", 32: "f4e2m1fn",
	33: "f8e8m0fnu",
}

func (s hloShape) bytes() int64 {
	total := int64(0)
	for _, e := range s.elements {
		total += e.bytes()
	}
	bits := elementBits[s.element]
	for _, d := range s.dims {
		if d != 0 && bits > 1<<50/d {
			return total // malformed
		}
		bits *= d
	}
	return total + int64((bits+7)/8)
}

// padded returns the size of an array in memory, including the padding of its dimensions to tiles.
func (s hloShape) padded() int64 {
	if len(s.tile) > len(s.dims) || len(s.minor) != len(s.dims) {
		return s.bytes()
	}
	filled := hloShape{element: s.element, dims: slices.Clone(s.dims)}
	for k, side := range s.tile {
		if d := s.minor[len(s.tile)-1-k]; d < uint64(len(s.dims)) && side > 0 && side < maxDevices {
			filled.dims[d] = (s.dims[d] + side - 1) / side * side
		}
	}
	return max(filled.bytes(), s.bytes())
}

// count returns the number of elements of an array, or of all arrays of a tuple.
func (s hloShape) count() float64 {
	if s.elements != nil {
		total := 0.0
		for _, e := range s.elements {
			total += e.count()
		}
		return total
	}
	n := 1.0
	for _, d := range s.dims {
		n *= float64(d)
	}
	return n
}

func (s hloShape) dim(d uint64) float64 {
	if d >= uint64(len(s.dims)) {
		return 1
	}
	return float64(s.dims[d])
}

// in returns the traffic of reading or writing all arrays of the shape.
func (s hloShape) in() traffic {
	if s.elements != nil {
		var t traffic
		for _, e := range s.elements {
			t = t.plus(e.in())
		}
		return t
	}
	return s.moved(float64(s.bytes()))
}

// moved returns the traffic of reading or writing the given number of bytes of an array.
func (s hloShape) moved(bytes float64) traffic {
	if s.memory != 0 {
		return traffic{bytes: bytes}
	}
	return traffic{bytes, bytes}
}

// traffic contains the number of bytes that an operation reads and writes: bytes in all memories,
// and main only in main memory.
type traffic struct{ bytes, main float64 }

func (t traffic) plus(o traffic) traffic { return traffic{t.bytes + o.bytes, t.main + o.main} }

func (s hloShape) arrays(all []hloShape) []hloShape {
	if s.elements == nil {
		return append(all, s)
	}
	for _, e := range s.elements {
		all = e.arrays(all)
	}
	return all
}

func (s hloShape) width() int { return len(s.arrays(nil)) }

// before returns the index of the first array of a tuple element in the list of all arrays of the
// tuple.
func (s hloShape) before(element uint64) (n int) {
	for k := range min(element, uint64(len(s.elements))) {
		n += s.elements[k].width()
	}
	return n
}
