package pjrt

import (
	"errors"
	"fmt"

	"google.golang.org/protobuf/encoding/protowire"
)

// Program is the code of a program for a compiler. The call that takes it does not change Code.
type Program struct {
	// Code is StableHLO as MLIR text or bytecode, or a serialized HLO proto.
	Code []byte
	// Format is "mlir" (the default), "hlo" or "hlo_with_config".
	Format string
	// Trusted has the compilers of this process compile Code. They end the process over some
	// programs, legal ones among them, and wrong bytes of bytecode or protos can corrupt its memory
	// without a word: set it for code that a sound writer made and nobody else could change, such as
	// that of this module's lowering. Package pjrt/worker compiles any code in a process of its own,
	// and needs no such trust.
	Trusted bool
}

// The formats of a Program.
const (
	FormatMLIR          = "mlir"
	FormatHLO           = "hlo"
	FormatHLOWithConfig = "hlo_with_config"
)

// check returns the program with its format, or what keeps it from the compilers of this process.
func (p Program) check() (Program, error) {
	switch p.Format {
	case "":
		p.Format = FormatMLIR
	case FormatMLIR, FormatHLO, FormatHLOWithConfig:
	default:
		return p, compileError("Program.Format", "%q is none of %q, %q, %q", p.Format, FormatMLIR, FormatHLO, FormatHLOWithConfig)
	}
	switch {
	case len(p.Code) == 0:
		return p, compileError("Program.Code", "it is empty")
	case !p.Trusted:
		return p, &CompileError{Field: trustedField, Reason: "it is not set, and a compiler can end this process over a program",
			Hint: "compile the program with package pjrt/worker in a process of its own, or set Program.Trusted if its writer is sound and nobody else can have changed it"}
	}
	return p, nil
}

// parameterShapes reads the entry parameters of an optimized program, and whether every parameter
// and result lies row-major: field 4 of an HloModuleProto is the program shape, and field 1 of
// HloModuleProtoWithConfig the module.
func parameterShapes(p Program) (shapes []*shape, rowMajor bool, err error) {
	module := p.Code
	switch p.Format {
	case FormatHLO:
	case FormatHLOWithConfig:
		if module, err = field(p.Code, 1); err != nil {
			return nil, false, err
		}
	default:
		return nil, false, fmt.Errorf("parameters of format %q: %w", p.Format, errors.ErrUnsupported)
	}
	programShape, err := field(module, 4)
	if err != nil {
		return nil, false, err
	}
	if programShape == nil {
		return nil, false, fmt.Errorf("%w: no program shape", errHLO)
	}
	shapes, rowMajor = []*shape{}, true
	err = eachField(programShape, func(n protowire.Number, _ uint64, b []byte) error {
		switch {
		case b == nil:
		case n == 1: // a parameter
			s, major, err := shapeProto(b)
			if err == nil && s == nil {
				err = errNoArray
			}
			shapes, rowMajor = append(shapes, s), rowMajor && major
			return err
		case n == 2: // the result
			_, major, err := shapeProto(b)
			rowMajor = rowMajor && major
			return err
		}
		return nil
	})
	if err != nil {
		return nil, false, err
	}
	return shapes, rowMajor, nil
}

// errNoArray is a parameter that no buffer can be.
var errNoArray = errors.New("a parameter is no array")
