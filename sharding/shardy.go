package sharding

import "strings"

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
	var b strings.Builder
	b.WriteString("<@")
	b.WriteString(symbol(meshName))
	b.WriteString(", [")
	for i, dim := range s.dims {
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteByte('{')
		writeQuoted(&b, dim.Axes)
		if dim.Open {
			if len(dim.Axes) > 0 {
				b.WriteString(", ")
			}
			b.WriteByte('?')
		}
		b.WriteByte('}')
	}
	b.WriteByte(']')
	if len(s.replicated) > 0 {
		b.WriteString(", replicated={")
		writeQuoted(&b, s.replicated)
		b.WriteByte('}')
	}
	b.WriteByte('>')
	return b.String()
}

// ShardyAxes returns axes as a Shardy set, for attributes such as manual_axes: {"replica",
// "logical"}. Sort them with [Mesh.SortAxes] first.
func ShardyAxes(axes []string) string {
	var b strings.Builder
	b.WriteByte('{')
	writeQuoted(&b, axes)
	b.WriteByte('}')
	return b.String()
}

func writeQuoted(b *strings.Builder, names []string) {
	for i, name := range names {
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString(quote(name))
	}
}

const hexDigits = "0123456789ABCDEF"

// quote writes an MLIR string literal: bytes outside printable ASCII become two hexadecimal digits.
func quote(name string) string {
	var b strings.Builder
	b.WriteByte('"')
	for i := range len(name) {
		c := name[i]
		if c == '"' || c == '\\' || c < ' ' || c > '~' {
			b.WriteByte('\\')
			b.WriteByte(hexDigits[c>>4])
			b.WriteByte(hexDigits[c&15])
			continue
		}
		b.WriteByte(c)
	}
	b.WriteByte('"')
	return b.String()
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
