package pjrt

import (
	"fmt"

	"tpustrategy/pjrt/internal/screen"
)

// Program is code for a compiler. The call that takes it does not change Code.
type Program struct {
	// Code is StableHLO as MLIR text or bytecode, or a serialized HLO proto.
	Code []byte
	// Format is "mlir" (the default), "hlo" or "hlo_with_config".
	Format string
}

// The formats of a Program.
const (
	FormatMLIR          = "mlir"
	FormatHLO           = "hlo"
	FormatHLOWithConfig = "hlo_with_config"
)

// check answers the format, or what keeps the program from any compiler for a
// platform that gets these options.
func (p Program) check(o CompileOptions, platform string) (string, error) {
	format := p.Format
	switch format {
	case "":
		format = FormatMLIR
	case FormatMLIR, FormatHLO, FormatHLOWithConfig:
	default:
		return "", &CompileError{"Program.Format", fmt.Sprintf("%q is none of %q, %q, %q", format, FormatMLIR, FormatHLO, FormatHLOWithConfig)}
	}
	if len(p.Code) == 0 {
		return "", &CompileError{"Program.Code", "it is empty"}
	}
	var err error
	switch module := p.Code; format {
	case FormatMLIR:
		err = screen.MLIR(p.Code, screen.Options{Shardy: o.Shardy, Host: platform == "cpu", TPU: platform == "tpu", Replicas: o.Replicas, Partitions: o.Partitions})
	case FormatHLOWithConfig:
		if module, err = field(p.Code, 1); err != nil {
			return format, nil // the plugin says what is wrong
		}
		fallthrough
	case FormatHLO:
		err = screen.HLO(module)
	}
	if err != nil {
		return "", &CompileError{"Program.Code", err.Error()}
	}
	return format, nil
}
