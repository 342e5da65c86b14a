package sharding

import (
	"fmt"
	"strings"
)

// Shardy returns the spec as a Shardy attribute on the named mesh (without a leading '@'):
// #sdy.sharding<@mesh, [{"replica"}, {?}], replicated={"x"}>.
//
// Shardy wants the explicitly replicated axes in the order of the mesh; use [Spec.Canonical] first
// if the spec has any.
func (s Spec) Shardy(meshName string) string {
	return "#sdy.sharding" + s.ShardyBare(meshName)
}

// ShardyBare returns the spec as it stands inside lists of shardings, such as in_shardings: <@mesh,
// [{"replica"}, {?}]>.
func (s Spec) ShardyBare(meshName string) string {
	dims := make([]string, len(s.dims))
	for i, dim := range s.dims {
		parts := quoted(dim.Axes)
		if dim.Open {
			parts = append(parts, "?")
		}
		dims[i] = "{" + strings.Join(parts, ", ") + "}"
	}
	text := "<@" + symbol(meshName) + ", [" + strings.Join(dims, ", ") + "]"
	if len(s.replicated) > 0 {
		text += ", replicated=" + ShardyAxes(s.replicated)
	}
	return text + ">"
}

// ShardyAxes returns axes as a Shardy set, for attributes such as manual_axes: {"replica",
// "logical"}. Sort them with [Mesh.SortAxes] first.
func ShardyAxes(axes []string) string { return "{" + strings.Join(quoted(axes), ", ") + "}" }

func quoted(names []string) []string {
	out := make([]string, len(names))
	for i, name := range names {
		out[i] = quote(name)
	}
	return out
}

// quote writes an MLIR string literal: bytes outside printable ASCII become two hexadecimal digits.
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

// symbol writes the name of an MLIR symbol, quoted unless it is a bare identifier.
func symbol(name string) string {
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
