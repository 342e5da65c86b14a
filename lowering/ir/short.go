package ir

// The keys of attributes that have no name in the short form of their op.
const (
	// Elements is the key of the value of a stablehlo.constant.
	Elements = "value"
	// Dimension is the key of the dimension of a stablehlo.iota.
	Dimension = "iota_dimension"
	// Direction is the key of the direction of a stablehlo.compare.
	Direction = "comparison_direction"
	// Callee is the key of the called function of a func.call.
	Callee = "callee"
	// Sharding is the key of the sharding of an sdy.sharding_constraint.
	Sharding = "sharding"
)

// short writes the custom form of a statement, after its results.
func (p *printer) short(s *Statement, indent int) {
	p.str(s.Op)
	attribute := func(before, key string) {
		p.str(before)
		if a := s.Attribute(key); a != nil {
			p.b = a.Append(p.b)
		}
	}
	operands := func(before, after string) {
		p.str(before)
		p.values(s.Operands)
		p.str(after)
	}
	signed := true // whether to write the operand types
	switch s.Op {
	case "stablehlo.constant":
		attribute(" ", Elements)
		return
	case "stablehlo.compare":
		attribute(" ", Direction)
		operands(", ", "")
	case "stablehlo.reshape", "stablehlo.convert":
		operands(" ", "")
	case "func.call":
		attribute(" ", Callee)
		operands("(", ")")
	case "sdy.manual_computation":
		operands("(", ")")
		for _, a := range s.Attributes {
			p.str(" " + a.Key + "=")
			p.b = a.Value.Append(p.b)
		}
		r := s.Regions[0]
		p.str(" (")
		list(p, r.Arguments, p.typed)
		p.str(") {\n")
		p.body(r.Body, indent+2)
		p.spaces(indent)
		p.str("}")
	case "stablehlo.iota":
		attribute(" dim = ", Dimension)
		signed = false
	case "sdy.sharding_constraint":
		operands(" ", "")
		attribute(" ", Sharding)
		signed = false
	default:
		if len(s.Operands) > 0 {
			operands(" ", "")
		}
		signed = false
	}
	p.str(" : ")
	switch {
	case signed:
		p.signature(s)
	case len(s.Results) > 0:
		p.types(s.Results)
	default:
		p.types(s.Operands)
	}
}
