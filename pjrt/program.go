package pjrt

import (
	"errors"
	"fmt"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/internal/screen"
)

// Program is the code of a program for a compiler. The call that takes it does not change Code.
type Program struct {
	// Code is StableHLO as MLIR text or bytecode, or a serialized HLO proto. The compilers of this
	// process refuse bytecode and protos; see [BytecodeError].
	Code []byte
	// Format is "mlir" (the default), "hlo" or "hlo_with_config".
	Format string

	facts *screen.Facts // what its maker knows of Code, which is then not read
}

// Lowered returns a program that this module's lowering made, with what the lowering knows of the
// code. [Client.Compile] checks that knowledge in the place of the text, if it is of this very
// text, and refuses the same programs. The text of any other program is read instead.
func Lowered(code []byte, facts *screen.Facts) Program {
	return Program{Code: code, Format: FormatMLIR, facts: facts}
}

// The formats of a Program.
const (
	FormatMLIR          = "mlir"
	FormatHLO           = "hlo"
	FormatHLOWithConfig = "hlo_with_config"
)

// check answers the program as a compiler for a platform is to get it with these options, format
// included, or what keeps it from any.
func (p Program) check(o CompileOptions, platform string) (Program, error) {
	switch p.Format {
	case "":
		p.Format = FormatMLIR
	case FormatMLIR, FormatHLO, FormatHLOWithConfig:
	default:
		return p, compileError("Program.Format", "%q is none of %q, %q, %q", p.Format, FormatMLIR, FormatHLO, FormatHLOWithConfig)
	}
	if len(p.Code) == 0 {
		return p, compileError("Program.Code", "it is empty")
	}
	var err error
	switch module := p.Code; p.Format {
	case FormatMLIR:
		compiler := screen.Options{Shardy: o.Shardy, Host: platform == "cpu", TPU: platform == "tpu", Replicas: o.Replicas, Partitions: o.Partitions}
		var known bool
		if known, err = p.facts.Check(p.Code, compiler); !known {
			p.Code, err = screen.MLIR(p.Code, compiler)
		}
	case FormatHLOWithConfig:
		if module, err = field(p.Code, 1); err != nil {
			err = nil // the plugin says what is wrong
			break
		}
		fallthrough
	case FormatHLO:
		err = screen.HLO(module)
	}
	if err == nil && !o.TrustBytecode && p.binary() {
		return p, &BytecodeError{Format: p.Format}
	}
	if err != nil {
		return p, compileError("Program.Code", "%v", err)
	}
	return p, nil
}

// binary tells whether a program is one that only compilers read.
func (p Program) binary() bool { return p.Format != FormatMLIR || screen.IsBytecode(p.Code) }

// BytecodeError reports that MLIR bytecode, or a serialized HLO proto, was to be compiled in this
// process: wrong bytes can end the process, or corrupt its memory without a word. Compile such a
// program with package pjrt/worker, in a process of its own; or give the program as text; or, if
// its writer is trusted, set [CompileOptions].TrustBytecode. The error matches [*CompileError].
type BytecodeError struct {
	// Format is the program's: FormatMLIR for bytecode, or FormatHLO or FormatHLOWithConfig.
	Format string
}

// Error returns the text of the [*CompileError] that the error matches.
func (e *BytecodeError) Error() string { return e.compileError().Error() }

func (e *BytecodeError) compileError() *CompileError {
	what := "MLIR bytecode"
	if e.Format != "" && e.Format != FormatMLIR {
		what = "a serialized program of format " + e.Format
	}
	return &CompileError{Field: "Program.Code", Reason: "it is " + what + ", and wrong bytes of it can corrupt this process",
		Hint: "compile it with package pjrt/worker in a process of its own, give the program as text, or set CompileOptions.TrustBytecode if nobody else can have changed it"}
}

// As sets a *CompileError target to the error in that form.
func (e *BytecodeError) As(target any) bool {
	c, ok := target.(**CompileError)
	if ok {
		*c = e.compileError()
	}
	return ok
}

// Kind returns PermissionDeniedError.
func (*BytecodeError) Kind() errkind.Kind { return errkind.PermissionDeniedError }

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
