package ir

import (
	"cmp"
	"fmt"
	"strconv"

	"github.com/tpustrategy/tpustrategy/errkind"
)

type printer struct {
	text []byte
	err  error
	// originOf maps values to origins. Without an origin, a value has the origin of an operand.
	originOf map[*Value]*Origin
	origins  []*Origin
}

// Text returns the module in MLIR syntax. A statement with an origin has a numbered location, from
// which compilers derive instruction names; see [OriginOf]. origins contains the origins by number.
// Text returns an error if the module contains a placeholder.
func (m *Module) Text() (text []byte, origins []*Origin, err error) {
	statements := 0
	for _, f := range m.Functions {
		statements += len(f.Body)
	}
	p := &printer{text: make([]byte, 0, 256*(1+statements)), originOf: make(map[*Value]*Origin, statements)}
	for _, a := range m.Aliases {
		p.writeString("#" + a.Key + " = ")
		p.text = a.Value.Append(p.text)
		p.writeString("\n")
	}
	p.writeString("module @" + m.Name)
	if len(m.Attributes) > 0 {
		p.writeString(" attributes {")
		p.writeInlineAttributes(m.Attributes)
		p.writeString("}")
	}
	p.writeString(" {\n")
	for _, mesh := range m.Meshes {
		p.writeString("  ")
		p.text = mesh.Append(p.text)
		p.writeString("\n")
	}
	for _, f := range m.Functions {
		p.writeFunction(f)
	}
	p.writeString("}\n")
	return p.text, p.origins, p.err
}

// NumberSeparator separates an op from its statement number in a location, as in add_s12.
const NumberSeparator = "_s"

// writeLocation writes the source location of a statement. A statement without an origin has the
// origin of its first operand with an origin.
func (p *printer) writeLocation(s *Statement) {
	if len(s.Results) == 0 {
		return
	}
	o := s.Results[0].Origin
	for _, v := range s.Operands {
		if o == nil {
			o = cmp.Or(v.Origin, p.originOf[v])
		}
	}
	if o == nil {
		return
	}
	for _, v := range s.Results {
		p.originOf[v] = o
	}
	p.writeString(` loc("` + s.OpName() + NumberSeparator)
	p.text = strconv.AppendInt(p.text, int64(len(p.origins)), 10)
	p.writeString(`")`)
	p.origins = append(p.origins, o)
}

func (p *printer) writeString(s string) { p.text = append(p.text, s...) }

func (p *printer) writeSpaces(n int) {
	for range n {
		p.text = append(p.text, ' ')
	}
}

func (p *printer) writeValue(v *Value) {
	p.text = append(p.text, '%')
	p.text = append(p.text, v.Name...)
}

func writeList[T any](p *printer, all []T, write func(T)) {
	for i, x := range all {
		if i > 0 {
			p.text = append(p.text, ", "...)
		}
		write(x)
	}
}

func (p *printer) writeValues(all []*Value) { writeList(p, all, p.writeValue) }

func (p *printer) writeTypes(all []*Value) {
	writeList(p, all, func(v *Value) { p.text = v.Type.append(p.text) })
}

func (p *printer) writeTypedValue(v *Value) {
	p.writeValue(v)
	p.writeString(": ")
	p.text = v.Type.append(p.text)
}

func (p *printer) writeInlineAttributes(all []Attribute) {
	writeList(p, all, func(a Attribute) {
		p.writeString(a.Key)
		if a.Value != nil {
			p.writeString(" = ")
			p.text = a.Value.Append(p.text)
		}
	})
}

// writeAttributes writes one attribute on the same line, or several attributes on separate lines.
func (p *printer) writeAttributes(all []Attribute, indent int) {
	switch len(all) {
	case 0:
	case 1:
		p.writeString(" { ")
		p.writeInlineAttributes(all)
		p.writeString(" }")
	default:
		p.writeString(" {")
		for i := range all {
			if i > 0 {
				p.writeString(",")
			}
			p.writeString("\n")
			p.writeSpaces(indent + 2)
			p.writeInlineAttributes(all[i : i+1])
		}
		p.writeString("\n")
		p.writeSpaces(indent)
		p.writeString("}")
	}
}

func (p *printer) writeSignatureAttributes(form Form, all []Attribute) {
	if form == GenericMultiline || len(all) == 0 {
		p.writeAttributes(all, 2)
		return
	}
	p.writeString(" {")
	p.writeInlineAttributes(all)
	p.writeString("}")
}

func (p *printer) writeFunction(f *Function) {
	p.writeString("  func.func ")
	if f.Private {
		p.writeString("private ")
	}
	p.writeString("@" + f.Name + "(")
	writeList(p, f.Parameters, func(a Parameter) {
		p.writeTypedValue(a.Value)
		p.writeSignatureAttributes(f.Form, a.Attributes)
	})
	p.writeString(") -> ")
	brackets := f.Form != GenericMultiline || len(f.Results) != 1 || len(f.Results[0].Attributes) > 0
	if brackets {
		p.writeString("(")
	}
	writeList(p, f.Results, func(r Result) {
		p.text = r.Type.append(p.text)
		p.writeSignatureAttributes(f.Form, r.Attributes)
	})
	if brackets {
		p.writeString(")")
	}
	p.writeString(" {\n")
	p.writeBody(f.Body, 4)
	p.writeString("  }\n")
}

func (p *printer) writeBody(all []*Statement, indent int) {
	for _, s := range all {
		p.writeSpaces(indent)
		p.writeStatement(s, indent)
		p.writeLocation(s)
		p.writeString("\n")
	}
}

func (p *printer) writeStatement(s *Statement, indent int) {
	if s.Placeholder != nil && p.err == nil {
		p.err = &errkind.Fault{Op: "ir: write", Subject: fmt.Sprintf("placeholder %T", s.Placeholder),
			Reason: "no pass has replaced it",
			Hint:   "assemble the program with the package that added the placeholder", Class: errkind.InternalError}
	}
	switch {
	case s.ResultName != "":
		p.writeString("%" + s.ResultName + ":" + strconv.Itoa(len(s.Results)) + " = ")
	case len(s.Results) > 0:
		p.writeValues(s.Results)
		p.writeString(" = ")
	}
	if s.Form == Custom {
		p.writeCustomForm(s, indent)
		return
	}
	p.text = strconv.AppendQuote(p.text, s.Op)
	p.writeString("(")
	p.writeValues(s.Operands)
	p.writeString(")")
	if len(s.Regions) > 0 {
		p.writeRegions(s, indent)
	}
	switch {
	case s.Form == GenericMultiline:
		p.writeAttributes(s.Attributes, indent)
	case len(s.Attributes) > 0:
		p.writeString(" {")
		p.writeInlineAttributes(s.Attributes)
		p.writeString("}")
	}
	p.writeString(" : ")
	p.writeFunctionType(s)
}

func (p *printer) writeRegions(s *Statement, indent int) {
	p.writeString(" ({\n")
	for i, r := range s.Regions {
		if i > 0 {
			p.writeSpaces(indent)
			p.writeString("}, {\n")
		}
		inner := indent + 2
		switch {
		case s.Form == GenericMultiline:
			p.writeBlockLabel(r, inner, ") :\n")
			inner += 4
		case r.Label != "":
			p.writeBlockLabel(r, inner, "):\n")
			inner += 2
		}
		p.writeBody(r.Body, inner)
	}
	p.writeSpaces(indent)
	p.writeString("})")
}

func (p *printer) writeBlockLabel(r *Region, indent int, end string) {
	p.writeSpaces(indent)
	p.writeString("^" + r.Label + "(")
	writeList(p, r.Arguments, p.writeTypedValue)
	p.writeString(end)
}

func (p *printer) writeFunctionType(s *Statement) {
	p.writeString("(")
	p.writeTypes(s.Operands)
	p.writeString(") -> ")
	brackets := len(s.Results) != 1 || s.ResultName != ""
	if brackets {
		p.writeString("(")
	}
	p.writeTypes(s.Results)
	if brackets {
		p.writeString(")")
	}
}
