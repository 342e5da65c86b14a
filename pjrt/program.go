package pjrt

import (
	"bytes"
	"fmt"
	"strings"
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

// mlirBytecodeMagic starts MLIR bytecode.
const mlirBytecodeMagic = "ML\xefR"

// check answers the format, or what keeps the program from any compiler.
func (p Program) check() (string, error) {
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
	if format != FormatMLIR {
		return format, nil
	}
	if sdy, gspmd := shardingDialects(p.Code); sdy && gspmd != "" {
		return "", &CompileError{"Program.Code", fmt.Sprintf("it has both Shardy (sdy.) and the GSPMD custom call @%s, which crashes the compiler: use sdy.sharding_constraint and sdy.manual_computation instead", gspmd)}
	}
	return format, nil
}

// gspmdCalls are the custom calls that GSPMD reads as shardings.
var gspmdCalls = []string{"Sharding", "SPMDFullToShardShape", "SPMDShardToFullShape"}

// shardingDialects says whether a module uses Shardy, and which GSPMD custom
// call it has, if any.
func shardingDialects(code []byte) (sdy bool, gspmd string) {
	if bytes.HasPrefix(code, []byte(mlirBytecodeMagic)) {
		// Bytecode keeps its strings NUL-terminated in one section.
		sdy = bytes.Contains(code, []byte("\x00sdy\x00"))
		for _, name := range gspmdCalls {
			if bytes.Contains(code, []byte("\x00"+name+"\x00")) {
				return sdy, name
			}
		}
		return sdy, ""
	}
	quoted := "" // what call_target_name = "..." would hold
	for rest := string(code); rest != ""; {
		i := strings.IndexAny(rest, "\"/@s")
		if i < 0 {
			break
		}
		head := rest[:i]
		switch c := rest[i]; {
		case c == '"':
			text, n := scanString(rest[i:])
			switch {
			case strings.HasSuffix(strings.TrimRight(head, " \t\n="), "call_target_name"):
				quoted = text
			case strings.HasPrefix(text, "sdy."): // an operation in generic form
				sdy = true
			}
			if gspmd == "" {
				gspmd = gspmdCall(quoted)
			}
			rest = rest[i+n:]
		case c == '/' && strings.HasPrefix(rest[i:], "//"):
			end := strings.IndexByte(rest[i:], '\n')
			if end < 0 {
				return sdy, gspmd
			}
			rest = rest[i+end:]
		case c == '@':
			n := 1
			for i+n < len(rest) && isName(rest[i+n]) {
				n++
			}
			if gspmd == "" && strings.HasSuffix(strings.TrimRight(head, " \t\n"), "custom_call") {
				gspmd = gspmdCall(rest[i+1 : i+n])
			}
			rest = rest[i+n:]
		case c == 's' && strings.HasPrefix(rest[i:], "sdy.") && (head == "" || !isName(head[len(head)-1])):
			sdy, rest = true, rest[i+4:]
		default:
			rest = rest[i+1:]
		}
	}
	return sdy, gspmd
}

func gspmdCall(name string) string {
	for _, n := range gspmdCalls {
		if n == name {
			return n
		}
	}
	return ""
}

func isName(c byte) bool {
	return c == '_' || c == '$' || c == '.' || c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
}

// scanString reads a quoted MLIR string at the start of s: its text and its
// length with the quotes. An unterminated one goes to the end.
func scanString(s string) (text string, n int) {
	for i := 1; i < len(s); i++ {
		switch s[i] {
		case '\\':
			i++
		case '"':
			return s[1:i], i + 1
		}
	}
	return s[1:], len(s)
}
