package screen

import "strings"

// custom reads what follows a name that is not in quotes.
func (r *reader) custom(i int, op *Operation) int {
	s := r.s
	var args []string // of the next region
	last := byte(0)   // the last byte before this token
	word := ""        // the last token, if it was a word
	for {
		if i = skipSpace(s, i); i >= len(s) {
			return i
		}
		start, before := i, word
		word = ""
		switch c := s[i]; {
		case c == '}' || c == ')' || c == ']':
			return i
		case c == '%':
			if last != ',' && r.results(i) {
				return i
			}
			i = endOfOperand(s, i)
			op.Operands = append(op.Operands, s[start:i])
			if op.operandsEnd == 0 {
				op.operandsAt = start
			}
			op.operandsEnd = i
		case c == '^' || (c == '#' || c == '!') && r.defines(i):
			return i
		case c == '#' || c == '!':
			i = r.value(i)
			if c == '#' {
				op.Words = append(op.Words, s[start:i])
			}
		case c == '"':
			_, n := scanString(s[i:])
			if last != 0 && last != ',' && r.opens(i+n) {
				return i // the next operation, in generic form
			}
			i += n
		case c == '@':
			name, end := readSymbol(s, i)
			if op.Symbol == "" && len(op.Operands) == 0 {
				op.Symbol = name
			}
			i, op.Symbols = end, append(op.Symbols, name)
		case c == '(':
			i, args = r.parentheses(i, op, args)
		case c == '{':
			body := (op.Name == "func.func" || op.Name == "builtin.module") && before != "attributes"
			switch {
			case body || r.braces(i) == region:
				i, args = r.region(i, op, args), nil
			default:
				end := r.group(i)
				op.addAttrs(s[i:end])
				i = end
			}
		case c == '[' || c == '<':
			i = r.group(i)
		case c == ':':
			i = r.types(i+1, op)
		case c == '-' && strings.HasPrefix(s[i:], "->"):
			op.Outs, i = r.typeList(i + 2)
			op.Outs = op.withoutAttrs(op.Outs)
		case isName(c):
			end := endOfName(s, i)
			word = s[i:end]
			at := skipSpace(s, end)
			switch {
			case at < len(s) && s[at] == '=' && !strings.HasPrefix(s[at:], "=="):
				value := skipSpace(s, at+1)
				i = r.value(value)
				op.Attrs = append(op.Attrs, Attr{Key: word, Value: s[value:i]})
				word = ""
			case word == "loc" && at < len(s) && s[at] == '(':
				i = r.group(at)
			case last != ',' && before != "applies" && r.starts(word, at):
				return start
			case word == "dense" || word == "array" || word == "dense_resource":
				i = r.value(i)
				op.Attrs = append(op.Attrs, Attr{Key: "value", Value: s[start:i]})
			default:
				i = end
				op.Words = append(op.Words, word)
			}
		default:
			i++
		}
		if i > start {
			last = s[i-1]
		} else {
			i++
		}
	}
}

// starts tells whether a word begins an operation: one with a dialect, or one that needs none where
// it stands.
func (r *reader) starts(word string, after int) bool {
	if c := word[0]; c >= '0' && c <= '9' {
		return false
	}
	switch word {
	case "module", "return", "call", "call_indirect":
		return true
	case "func":
		return after < len(r.s) && r.s[after] == '@'
	}
	at := strings.IndexByte(word, '.')
	return at > 0 && at < len(word)-1
}

// results tells whether %a, %b:2 = begins at s[i].
func (r *reader) results(i int) bool {
	s := r.s
	for i < len(s) && s[i] == '%' {
		if i = skipSpace(s, endOfSuffix(s, i+1)); i < len(s) && s[i] == ':' {
			if i = skipSpace(s, i+1); i == len(s) || s[i] < '0' || s[i] > '9' {
				return false
			}
			i = skipSpace(s, endOfName(s, i))
		}
		if i < len(s) && s[i] == ',' {
			i = skipSpace(s, i+1)
		} else {
			break
		}
	}
	return i < len(s) && s[i] == '='
}

// defines tells whether an alias is defined at s[i].
func (r *reader) defines(i int) bool {
	i = skipSpace(r.s, endOfSuffix(r.s, i+1))
	return i < len(r.s) && r.s[i] == '='
}

func (r *reader) opens(i int) bool {
	i = skipSpace(r.s, i)
	return i < len(r.s) && r.s[i] == '('
}

// parentheses reads what a custom form has in parentheses: operands, the arguments of a region, or
// of a function, or regions.
func (r *reader) parentheses(i int, op *Operation, args []string) (int, []string) {
	s := r.s
	if at := skipSpace(s, i+1); at < len(s) && s[at] == '{' && r.braces(at) != dictionary {
		return r.regions(i, op), args
	}
	end := r.group(i)
	inside := s[i+1 : max(end-1, i+1)]
	if op.Name == "func.func" {
		types, names := op.arguments(inside)
		op.Ins = types
		return end, names
	}
	first := true
	for _, e := range splitList(inside) {
		if e[0] != '%' {
			if key, value, ok := attribute(e); ok {
				op.Attrs = append(op.Attrs, Attr{Key: key, Value: value})
			}
			first = false
			continue
		}
		stop := endOfOperand(e, 0)
		switch at := skipSpace(e, stop); {
		case at < len(e) && e[at] == ':':
			args = append(args, e[:stop])
		case at < len(e) && e[at] == '=':
			args = append(args, e[:stop])
			if v := skipSpace(e, at+1); v < len(e) && e[v] == '%' {
				op.Operands = append(op.Operands, e[v:endOfOperand(e, v)])
			}
		default:
			op.Operands = append(op.Operands, e[:stop])
		}
	}
	if first && op.operandsEnd == 0 {
		op.operandsAt, op.operandsEnd = i+1, max(end-1, i+1)
	}
	return end, args
}

// What braces hold.
const (
	dictionary = iota
	region
	empty
)

// braces tells what is in the braces at s[i], by its first tokens.
func (r *reader) braces(i int) int {
	s := r.s
	if i = skipSpace(s, i+1); i >= len(s) {
		return dictionary
	}
	switch c := s[i]; {
	case c == '}':
		return empty
	case c == '%' || c == '^':
		return region
	case c == '"':
		_, n := scanString(s[i:])
		if r.opens(i + n) {
			return region
		}
	case isName(c):
		end := endOfName(s, i)
		at := skipSpace(s, end)
		if at >= len(s) || s[at] == '=' || s[at] == ',' {
			return dictionary
		}
		if s[at] == '}' && !strings.HasSuffix(s[i:end], "return") {
			return dictionary
		}
		return region
	}
	return dictionary
}
