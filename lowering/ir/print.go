package ir

import (
	"cmp"
	"fmt"
	"strconv"

	"github.com/tpustrategy/tpustrategy/errkind"
)

// printer writes a module.
type printer struct {
	b   []byte
	err error
	// of maps values to their origins. A value without its own origin has the origin of its
	// operands.
	of      map[*Value]*Origin
	origins []*Origin
}

// Text writes the module. The same values return the same bytes, whatever their origins are. A
// statement with an origin has a location in the text, from which a compiler derives the names of
// its instructions. The location ends with the statement's number after [Numbered]. origins[i] is
// the origin of number i. Text returns an error if a statement has a Mark.
func (m *Module) Text() (text []byte, origins []*Origin, err error) {
	statements := 0
	for _, f := range m.Functions {
		statements += len(f.Body)
	}
	p := &printer{b: make([]byte, 0, 256*(1+statements)), of: make(map[*Value]*Origin, statements)}
	for _, a := range m.Aliases {
		p.str("#" + a.Key + " = ")
		p.b = a.Value.Append(p.b)
		p.str("\n")
	}
	p.str("module @" + m.Name)
	if len(m.Attributes) > 0 {
		p.str(" attributes {")
		p.inline(m.Attributes)
		p.str("}")
	}
	p.str(" {\n")
	for _, mesh := range m.Meshes {
		p.str("  ")
		p.b = mesh.Append(p.b)
		p.str("\n")
	}
	for _, f := range m.Functions {
		p.function(f)
	}
	p.str("}\n")
	return p.b, p.origins, p.err
}

// Numbered separates the op from the number of a statement in its location, as in add_s12.
const Numbered = "_s"

// location writes the location of a statement. A statement that a pass added has the origin of its
// first operand with an origin.
func (p *printer) location(s *Statement) {
	if len(s.Results) == 0 {
		return
	}
	o := s.Results[0].Origin
	for _, v := range s.Operands {
		if o == nil {
			o = cmp.Or(v.Origin, p.of[v])
		}
	}
	if o == nil {
		return
	}
	for _, v := range s.Results {
		p.of[v] = o
	}
	p.str(` loc("` + s.Name() + Numbered)
	p.b = strconv.AppendInt(p.b, int64(len(p.origins)), 10)
	p.str(`")`)
	p.origins = append(p.origins, o)
}

func (p *printer) str(s string) { p.b = append(p.b, s...) }

func (p *printer) spaces(n int) {
	for range n {
		p.b = append(p.b, ' ')
	}
}

func (p *printer) value(v *Value) {
	p.b = append(p.b, '%')
	p.b = append(p.b, v.Name...)
}

// list writes elements separated by commas.
func list[T any](p *printer, all []T, write func(T)) {
	for i, x := range all {
		if i > 0 {
			p.b = append(p.b, ", "...)
		}
		write(x)
	}
}

func (p *printer) values(all []*Value) { list(p, all, p.value) }

func (p *printer) types(all []*Value) { list(p, all, func(v *Value) { p.b = v.Type.append(p.b) }) }

func (p *printer) typed(v *Value) {
	p.value(v)
	p.str(": ")
	p.b = v.Type.append(p.b)
}

// inline writes attributes on one line.
func (p *printer) inline(all []Attribute) {
	list(p, all, func(a Attribute) {
		p.str(a.Key)
		if a.Value != nil {
			p.str(" = ")
			p.b = a.Value.Append(p.b)
		}
	})
}

// lines writes one attribute in place, or several attributes on one line each.
func (p *printer) lines(all []Attribute, indent int) {
	switch len(all) {
	case 0:
	case 1:
		p.str(" { ")
		p.inline(all)
		p.str(" }")
	default:
		p.str(" {")
		for i := range all {
			if i > 0 {
				p.str(",")
			}
			p.str("\n")
			p.spaces(indent + 2)
			p.inline(all[i : i+1])
		}
		p.str("\n")
		p.spaces(indent)
		p.str("}")
	}
}

// border writes the attributes of an argument or a result of a function.
func (p *printer) border(form Form, all []Attribute) {
	if form == Long || len(all) == 0 {
		p.lines(all, 2)
		return
	}
	p.str(" {")
	p.inline(all)
	p.str("}")
}

func (p *printer) function(f *Function) {
	p.str("  func.func ")
	if f.Private {
		p.str("private ")
	}
	p.str("@" + f.Name + "(")
	list(p, f.Parameters, func(a Parameter) {
		p.typed(a.Value)
		p.border(f.Form, a.Attributes)
	})
	p.str(") -> ")
	brackets := f.Form != Long || len(f.Results) != 1 || len(f.Results[0].Attributes) > 0
	if brackets {
		p.str("(")
	}
	list(p, f.Results, func(r Result) {
		p.b = r.Type.append(p.b)
		p.border(f.Form, r.Attributes)
	})
	if brackets {
		p.str(")")
	}
	p.str(" {\n")
	p.body(f.Body, 4)
	p.str("  }\n")
}

func (p *printer) body(all []*Statement, indent int) {
	for _, s := range all {
		p.spaces(indent)
		p.statement(s, indent)
		p.location(s)
		p.str("\n")
	}
}

func (p *printer) statement(s *Statement, indent int) {
	if s.Mark != nil && p.err == nil {
		p.err = &errkind.Fault{Op: "ir: write", Subject: fmt.Sprintf("mark %T", s.Mark), Reason: "no pass has replaced it",
			Hint: "give the package that made the mark the program to assemble", Class: errkind.InternalError}
	}
	switch {
	case s.Pack != "":
		p.str("%" + s.Pack + ":" + strconv.Itoa(len(s.Results)) + " = ")
	case len(s.Results) > 0:
		p.values(s.Results)
		p.str(" = ")
	}
	if s.Form == Short {
		p.short(s, indent)
		return
	}
	p.b = strconv.AppendQuote(p.b, s.Op)
	p.str("(")
	p.values(s.Operands)
	p.str(")")
	if len(s.Regions) > 0 {
		p.regions(s, indent)
	}
	switch {
	case s.Form == Long:
		p.lines(s.Attributes, indent)
	case len(s.Attributes) > 0:
		p.str(" {")
		p.inline(s.Attributes)
		p.str("}")
	}
	p.str(" : ")
	p.signature(s)
}

// regions writes the bodies of a statement in its generic form.
func (p *printer) regions(s *Statement, indent int) {
	p.str(" ({\n")
	for i, r := range s.Regions {
		if i > 0 {
			p.spaces(indent)
			p.str("}, {\n")
		}
		inner := indent + 2
		switch {
		case s.Form == Long:
			p.label(r, inner, ") :\n")
			inner += 4
		case r.Label != "":
			p.label(r, inner, "):\n")
			inner += 2
		}
		p.body(r.Body, inner)
	}
	p.spaces(indent)
	p.str("})")
}

func (p *printer) label(r *Region, indent int, end string) {
	p.spaces(indent)
	p.str("^" + r.Label + "(")
	list(p, r.Arguments, p.typed)
	p.str(end)
}

// signature writes the types of the operands and of the results.
func (p *printer) signature(s *Statement) {
	p.str("(")
	p.types(s.Operands)
	p.str(") -> ")
	brackets := len(s.Results) != 1 || s.Pack != ""
	if brackets {
		p.str("(")
	}
	p.types(s.Results)
	if brackets {
		p.str(")")
	}
}
