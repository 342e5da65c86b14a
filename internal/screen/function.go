package screen

import "strings"

// header looks at a function: what it takes and gives, and that it has a body.
func (f *checker) header(op *Operation) error {
	name, types := op.Symbol, append(op.Ins[:len(op.Ins):len(op.Ins)], op.Outs...)
	if name == "" {
		var ok bool
		if name, ok = op.text("sym_name"); !ok {
			return nil
		}
		types = []string{op.get("function_type")}
		whole, err := f.expand(f.resolve(types[0]), 0)
		if err != nil {
			return err
		}
		(&reader{s: whole}).types(0, op)
	}
	f.define(name)
	body := false
	for _, region := range op.Regions {
		body = body || len(region.Ops) > 0
	}
	if !body && !f.unclosed {
		return codeError("function @%s has no body, which crashes the compiler: give it one, or use stablehlo.custom_call", name)
	}
	for i, borders := range []string{"arg_attrs", "res_attrs"} {
		inside := strings.TrimSuffix(strings.TrimPrefix(f.resolve(op.get(borders)), "["), "]")
		of := [][]string{op.Ins, op.Outs}[i]
		for k, one := range splitList(inside) {
			attrs := dictionaryOf(f.resolve(one))
			if err := f.attributes(op, attrs); err != nil {
				return err
			}
			if k < len(of) {
				op.addBorders(of[k], attrs)
			}
		}
	}
	for i, a := range op.Borders {
		if err := f.tiled(a, op.borderTypes[i]); err != nil {
			return err
		}
	}
	if name != "main" {
		return nil
	}
	for _, t := range types {
		if f.hasBounds(t, 0) {
			return codeError("main has the bounded dynamic type %s, and buffers have no dynamic size: pad to a static shape and pass the size as an argument of its own", t)
		}
	}
	return nil
}

func (f *checker) define(name string) {
	f.function = name
	clear(f.constants)
	clear(f.shardings)
	clear(f.folds)
	f.order = append(f.order, name)
	f.defined[name] = true
}

// hasBounds tells whether a tensor<?x..., encoding> is in a type's text.
func (f *checker) hasBounds(t string, depth int) bool {
	for i := 0; i < len(t); {
		switch start := i; {
		case t[i] == '"':
			_, n := scanString(t[i:])
			i += n
		case t[i] == '!':
			i = endOfSuffix(t, i+1)
			if as, ok := f.aliases[t[start:i]]; ok && depth < 8 && f.hasBounds(as, depth+1) {
				return true
			}
		case isName(t[i]):
			i = endOfName(t, i)
			if t[start:i] != "tensor" || i == len(t) || t[i] != '<' {
				continue
			}
			end := endOfGroup(t, i)
			if end == 0 {
				return false
			}
			parts := splitList(t[i+1 : end-1])
			if len(parts) > 1 && strings.Contains(parts[0], "?") {
				return true
			}
			i = end
		default:
			i++
		}
	}
	return false
}
