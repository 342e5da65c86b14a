package pjrt

import (
	"fmt"

	"github.com/tpustrategy/tpustrategy/internal/screen"
)

// Program is code for a compiler. The call that takes it does not change Code.
type Program struct {
	// Code is StableHLO as MLIR text or bytecode, or a serialized HLO proto. Bytecode and
	// protos are refused by the compilers of this process, see [BytecodeError].
	Code []byte
	// Format is "mlir" (the default), "hlo" or "hlo_with_config".
	Format string

	facts *screen.Facts // what its maker knows of Code, which is then not read
}

// Lowered returns a program that this module's lowering made, which gives what it knows of the code:
// [Client.Compile] checks that in the place of the text, if it is of this very text, and refuses the
// same programs. Others have no facts to give, and their text is read.
func Lowered(code []byte, facts *screen.Facts) Program {
	return Program{Code: code, Format: FormatMLIR, facts: facts}
}

// The formats of a Program.
const (
	FormatMLIR          = "mlir"
	FormatHLO           = "hlo"
	FormatHLOWithConfig = "hlo_with_config"
)

// check answers the program as a compiler for a platform is to get it with these options,
// format included, or what keeps it from any.
func (p Program) check(o CompileOptions, platform string) (Program, error) {
	switch p.Format {
	case "":
		p.Format = FormatMLIR
	case FormatMLIR, FormatHLO, FormatHLOWithConfig:
	default:
		return p, &CompileError{"Program.Format", fmt.Sprintf("%q is none of %q, %q, %q", p.Format, FormatMLIR, FormatHLO, FormatHLOWithConfig)}
	}
	if len(p.Code) == 0 {
		return p, &CompileError{"Program.Code", "it is empty"}
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
		return p, &CompileError{"Program.Code", err.Error()}
	}
	return p, nil
}

// binary tells whether a program is one that only compilers read.
func (p Program) binary() bool { return p.Format != FormatMLIR || screen.IsBytecode(p.Code) }
