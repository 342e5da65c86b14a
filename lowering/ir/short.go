package ir

// Keys of attributes that the custom form of an op writes without the key.
const (
	// ValueKey is the value of a stablehlo.constant.
	ValueKey = "value"
	// IotaDimensionKey is the dimension of a stablehlo.iota.
	IotaDimensionKey = "iota_dimension"
	// ComparisonDirectionKey is the direction of a stablehlo.compare.
	ComparisonDirectionKey = "comparison_direction"
	// CalleeKey is the function that a func.call calls.
	CalleeKey = "callee"
	// ShardingKey is the sharding of an sdy.sharding_constraint.
	ShardingKey = "sharding"
)

// writeCustomForm writes a statement in MLIR's custom form, such as stablehlo.add %a, %b :
// tensor<f32>. It does not write the names of the results.
func (p *printer) writeCustomForm(s *Statement, indent int) {
	p.writeString(s.Op)
	attribute := func(before, key string) {
		p.writeString(before)
		if a := s.Attribute(key); a != nil {
			p.text = a.Append(p.text)
		}
	}
	operands := func(before, after string) {
		p.writeString(before)
		p.writeValues(s.Operands)
		p.writeString(after)
	}
	signed := true // whether to write the operand types
	switch s.Op {
	case "stablehlo.constant":
		attribute(" ", ValueKey)
		return
	case "stablehlo.compare":
		attribute(" ", ComparisonDirectionKey)
		operands(", ", "")
	case "stablehlo.reshape", "stablehlo.convert":
		operands(" ", "")
	case "func.call":
		attribute(" ", CalleeKey)
		operands("(", ")")
	case "sdy.manual_computation":
		operands("(", ")")
		for _, a := range s.Attributes {
			p.writeString(" " + a.Key + "=")
			p.text = a.Value.Append(p.text)
		}
		r := s.Regions[0]
		p.writeString(" (")
		writeList(p, r.Arguments, p.writeTypedValue)
		p.writeString(") {\n")
		p.writeBody(r.Body, indent+2)
		p.writeSpaces(indent)
		p.writeString("}")
	case "stablehlo.iota":
		attribute(" dim = ", IotaDimensionKey)
		signed = false
	case "sdy.sharding_constraint":
		operands(" ", "")
		attribute(" ", ShardingKey)
		signed = false
	default:
		if len(s.Operands) > 0 {
			operands(" ", "")
		}
		signed = false
	}
	p.writeString(" : ")
	switch {
	case signed:
		p.writeFunctionType(s)
	case len(s.Results) > 0:
		p.writeTypes(s.Results)
	default:
		p.writeTypes(s.Operands)
	}
}
