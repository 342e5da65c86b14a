package sharding

import (
	"fmt"
	"strings"
)

// ShardyText returns the spec as a Shardy attribute on the mesh with the given name (without '@'):
//
//	#sdy.sharding<@mesh, [{"replica"}, {?}], replicated={"x"}>
//
// Shardy requires explicitly replicated axes in mesh order; call [Spec.Canonical] first if the
// spec has any.
func (s Spec) ShardyText(meshName string) string {
	return "#sdy.sharding" + s.ShardyTextBare(meshName)
}

// ShardyTextBare returns the spec in the form used inside lists of shardings such as in_shardings:
//
//	<@mesh, [{"replica"}, {?}]>
func (s Spec) ShardyTextBare(meshName string) string {
	dims := make([]string, len(s.dims))
	for i, dim := range s.dims {
		parts := quoteAll(dim.Axes)
		if dim.Open {
			parts = append(parts, "?")
		}
		dims[i] = "{" + strings.Join(parts, ", ") + "}"
	}
	text := "<@" + quoteSymbol(meshName) + ", [" + strings.Join(dims, ", ") + "]"
	if len(s.replicated) > 0 {
		text += ", replicated=" + ShardyAxisSet(s.replicated)
	}
	return text + ">"
}

// ShardyAxisSet returns axes as a Shardy set, such as {"replica", "logical"}, for attributes such
// as manual_axes. The axes must be in mesh order; see [Mesh.SortAxes].
func ShardyAxisSet(axes []string) string { return "{" + strings.Join(quoteAll(axes), ", ") + "}" }

func quoteAll(names []string) []string {
	out := make([]string, len(names))
	for i, name := range names {
		out[i] = quote(name)
	}
	return out
}

// quote returns name as an MLIR string literal. Bytes outside printable ASCII become two
// hexadecimal digits.
func quote(name string) string {
	var b strings.Builder
	for i := range len(name) {
		if c := name[i]; c == '"' || c == '\\' || c < ' ' || c > '~' {
			fmt.Fprintf(&b, `\%02X`, c)
		} else {
			b.WriteByte(c)
		}
	}
	return `"` + b.String() + `"`
}

// quoteSymbol returns name as an MLIR symbol name, quoted unless it is a bare identifier.
func quoteSymbol(name string) string {
	for i := range len(name) {
		if !isSymbolByte(name[i], i == 0) {
			return quote(name)
		}
	}
	if name == "" {
		return `""`
	}
	return name
}
