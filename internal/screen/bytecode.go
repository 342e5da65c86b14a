package screen

import (
	"bytes"
	"strings"
)

// IsBytecode reports whether a program is MLIR bytecode.
func IsBytecode(code []byte) bool { return bytes.HasPrefix(code, []byte(mlirBytecodeMagic)) }

// scanBytecode looks at the strings of MLIR bytecode, which keeps them NUL-terminated in one
// section: names of dialects, operations and attributes, and texts. What uses which, it does not
// see.
func (f *checker) scanBytecode(s string) error {
	has := func(name string) bool { return strings.Contains(s, "\x00"+name+"\x00") }
	f.sdy = has("sdy")
	for _, name := range gspmdCalls {
		if !has(name) {
			continue
		}
		f.gspmd = name
		if !has("mhlo.sharding") || name != "Sharding" && !strings.Contains(s, "manual}") {
			return codeError("it has the custom call @%s without its sharding, which crashes the compiler: use sdy.sharding_constraint and sdy.manual_computation", name)
		}
	}
	switch {
	case has(aliasKey):
		return errAliasKey()
	case f.Shardy && has(autoKey):
		return errAutoKey("")
	case strings.Contains(s, "\x00"+exportPrefix):
		return errExportKey(exportPrefix)
	case strings.Contains(s, "\x00"+layoutPrefix):
		return errLayoutKey(layoutPrefix)
	}
	for _, check := range []func(string) error{checkShardingsIn, checkMeshesInBytes} {
		if err := check(s); err != nil {
			return err
		}
	}
	for _, name := range []string{"infeed", "outfeed"} {
		// VHLO, the form that is kept, adds a version.
		if has(name) || has(name+"_v1") {
			return codeError("it has %s, which waits for ever, for there is no infeed here: use arguments and results", name)
		}
	}
	for _, name := range []string{"SliceToDynamic", "__onednn$matmul", "__onednn$softmax", "__onednn$layernorm", "__onednn$convolution"} {
		if has(name) {
			return codeError("custom call @%s is the compiler's own and crashes it elsewhere: %s", name, internalCall(name))
		}
	}
	for _, list := range [][]string{mhloCalls, mhloCrashes} {
		for _, name := range list {
			if has("mhlo."+name) && !has("mhlo.attributes") {
				return codeError("custom call @mhlo.%s has no mhlo.attributes, which crashes the compiler: write the operation of stablehlo or chlo itself", name)
			}
		}
	}
	return nil
}
