package pjrt

import (
	"errors"
	"fmt"

	"google.golang.org/protobuf/encoding/protowire"
)

// errHLO is what any malformed program proto gives.
var errHLO = errors.New("malformed HLO proto")

// errNoArray is a parameter that no buffer can be.
var errNoArray = errors.New("a parameter is no array")

// eachField walks the fields of a message. f gets varints as v and
// length-delimited fields as b; other kinds are skipped.
func eachField(m []byte, f func(n protowire.Number, v uint64, b []byte) error) error {
	for len(m) > 0 {
		n, kind, size := protowire.ConsumeTag(m)
		if size < 0 {
			return fmt.Errorf("%w: %v", errHLO, protowire.ParseError(size))
		}
		m = m[size:]
		var v uint64
		var b []byte
		switch kind {
		case protowire.VarintType:
			v, size = protowire.ConsumeVarint(m)
		case protowire.BytesType:
			b, size = protowire.ConsumeBytes(m)
		default:
			size = protowire.ConsumeFieldValue(n, kind, m)
		}
		if size < 0 {
			return fmt.Errorf("%w: field %d: %v", errHLO, n, protowire.ParseError(size))
		}
		m = m[size:]
		if kind == protowire.VarintType || kind == protowire.BytesType {
			if err := f(n, v, b); err != nil {
				return err
			}
		}
	}
	return nil
}

// parameterShapes reads the entry parameters of an optimized program: field 4
// of an HloModuleProto is the program shape, and field 1 of
// HloModuleProtoWithConfig the module.
func parameterShapes(p Program) ([]*shape, error) {
	module := p.Code
	switch p.Format {
	case FormatHLO:
	case FormatHLOWithConfig:
		module = nil
		err := eachField(p.Code, func(n protowire.Number, _ uint64, b []byte) error {
			if n == 1 && b != nil {
				module = b
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
	default:
		return nil, fmt.Errorf("parameters of format %q: %w", p.Format, errors.ErrUnsupported)
	}
	var programShape []byte
	err := eachField(module, func(n protowire.Number, _ uint64, b []byte) error {
		if n == 4 && b != nil {
			programShape = b
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	if programShape == nil {
		return nil, fmt.Errorf("%w: no program shape", errHLO)
	}
	shapes := []*shape{}
	err = eachField(programShape, func(n protowire.Number, _ uint64, b []byte) error {
		if n != 1 || b == nil {
			return nil
		}
		s, err := shapeProto(b)
		shapes = append(shapes, s)
		return err
	})
	if err != nil {
		return nil, err
	}
	return shapes, nil
}

// shapeProto reads a ShapeProto: 2 the element type, 3 the dimensions.
func shapeProto(m []byte) (*shape, error) {
	var dtype DType
	dims := []int64{}
	err := eachField(m, func(n protowire.Number, v uint64, b []byte) error {
		switch {
		case n == 2:
			dtype = dtypeOfXLA(v)
		case n == 3 && b == nil:
			dims = append(dims, int64(v))
		case n == 3:
			for len(b) > 0 {
				v, size := protowire.ConsumeVarint(b)
				if size < 0 {
					return fmt.Errorf("%w: dimensions: %v", errHLO, protowire.ParseError(size))
				}
				dims, b = append(dims, int64(v)), b[size:]
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	if dtype == Invalid {
		return nil, errNoArray
	}
	return shapeOf64(dtype, dims), nil
}
