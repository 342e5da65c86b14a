package screen

import "strings"

// reader reads the text of MLIR into operations. It knows the generic form, in which
// every part has its place, and of custom forms what they have in common: operands,
// symbols, attributes, lists in brackets, types behind a colon, and regions. An
// operation ends where the next one begins. It goes over the text once and never back:
// what it does not understand it passes.
type reader struct {
	s       string
	aliases map[string]string // #name and !name, to their text
}

// read reads a whole file. The text's brackets are known to be nested no deeper than
// maxNesting.
func read(s string) (*Region, map[string]string) {
	r := &reader{s: s, aliases: map[string]string{}}
	top := &Region{}
	for i := 0; i < len(s); {
		i = max(r.block(i, top), i+1) // a closing bracket too many is passed
	}
	return top, r.aliases
}

// block reads operations into a region, to the bracket that closes it or the end.
func (r *reader) block(i int, into *Region) int {
	for {
		if i = skipSpace(r.s, i); i >= len(r.s) {
			return i
		}
		switch c := r.s[i]; {
		case c == '}' || c == ')':
			return i
		case c == '^':
			i = r.label(i, into)
		case c == '{' && strings.HasPrefix(r.s[i:], "{-#"): // resources of the file
			n := strings.Index(r.s[i:], "#-}")
			if n < 0 {
				return len(r.s)
			}
			i += n + len("#-}")
		case c == '#' || c == '!':
			i = r.alias(i)
		case c == '%' || c == '"' || isName(c):
			op := &Operation{at: i}
			if i = r.operation(i, op); op.Name != "" {
				into.Ops = append(into.Ops, op)
			}
		default:
			i++
		}
	}
}

// label reads ^name(%a: type, ...): at s[i].
func (r *reader) label(i int, into *Region) int {
	i = skipSpace(r.s, endOfSuffix(r.s, i+1))
	if i < len(r.s) && r.s[i] == '(' {
		end := r.group(i)
		into.Args = append(into.Args, typedNames(r.s[i+1:max(end-1, i+1)])...)
		i = skipSpace(r.s, end)
	}
	if i < len(r.s) && r.s[i] == ':' {
		i++
	}
	return i
}

// typedNames are the names before the types of a list, %a: t, %b: t loc(...).
func typedNames(list string) (names []string) {
	for _, e := range splitList(list) {
		if e[0] == '%' {
			names = append(names, e[:endOfSuffix(e, 1)])
		}
	}
	return names
}

// alias reads #name = attribute or !name = type.
func (r *reader) alias(i int) int {
	end := endOfSuffix(r.s, i+1)
	name := r.s[i:end]
	at := skipSpace(r.s, end)
	if at >= len(r.s) || r.s[at] != '=' {
		return end
	}
	start := skipSpace(r.s, at+1)
	end = r.value(start)
	if at := skipSpace(r.s, end); at < len(r.s) && r.s[at] == ':' { // dense<...> : type
		_, end = r.typeList(at + 1)
	}
	r.aliases[name] = r.s[start:end]
	return end
}

// group is the end of the brackets that open at s[i]; the end of the text if they do
// not close.
func (r *reader) group(i int) int {
	if end := endOfGroup(r.s, i); end > i+1 {
		return end
	}
	return len(r.s)
}

// operation reads one, with its results, from s[i] to where the next begins.
func (r *reader) operation(i int, op *Operation) int {
	s := r.s
	for i < len(s) && s[i] == '%' {
		end := endOfSuffix(s, i+1)
		op.Results = append(op.Results, s[i:end])
		if i = skipSpace(s, end); i < len(s) && s[i] == ':' {
			i = skipSpace(s, endOfName(s, skipSpace(s, i+1)))
		}
		if i < len(s) && s[i] == ',' {
			i = skipSpace(s, i+1)
		}
	}
	if len(op.Results) > 0 {
		if i >= len(s) || s[i] != '=' {
			return i
		}
		i = skipSpace(s, i+1)
	}
	op.name = i
	switch {
	case i < len(s) && s[i] == '"':
		name, n := scanString(s[i:])
		op.Name = name
		i = r.generic(i+n, op)
	case i < len(s) && isName(s[i]):
		end := endOfName(s, i)
		op.Name = fullName(s[i:end])
		i = r.custom(end, op)
	}
	op.end = i
	return i
}

// fullName gives the names that are written without their dialect theirs.
func fullName(name string) string {
	switch name {
	case "module":
		return "builtin.module"
	case "func", "call", "return", "call_indirect", "constant":
		return "func." + name
	}
	return name
}

// generic reads (operands)[successors]<{properties}>({region}, ...){attributes} : type.
func (r *reader) generic(i int, op *Operation) int {
	s := r.s
	if i = skipSpace(s, i); i >= len(s) || s[i] != '(' {
		return i
	}
	end := r.group(i)
	op.addOperands(s[i+1 : max(end-1, i+1)])
	op.operandsAt, op.operandsEnd = i+1, max(end-1, i+1)
	for i = skipSpace(s, end); i < len(s); i = skipSpace(s, i) {
		switch {
		case s[i] == '[':
			i = r.group(i)
		case s[i] == '<' || s[i] == '{':
			end := r.group(i)
			op.addAttrs(s[i:end])
			i = end
		case s[i] == '(':
			i = r.regions(i, op)
		case s[i] == ':':
			return r.location(r.types(i+1, op))
		default:
			return r.location(i)
		}
	}
	return i
}

// regions reads ({...}, {...}).
func (r *reader) regions(i int, op *Operation) int {
	for i = skipSpace(r.s, i+1); i < len(r.s); i = skipSpace(r.s, i) {
		switch r.s[i] {
		case '{':
			i = r.region(i, op, nil)
		case ',':
			i++
		case ')':
			return i + 1
		default:
			return i
		}
	}
	return i
}

// region reads {...} at s[i].
func (r *reader) region(i int, op *Operation, args []string) int {
	region := &Region{Args: args}
	op.Regions = append(op.Regions, region)
	for i++; ; i++ { // a parenthesis too many is passed
		if i = r.block(i, region); i >= len(r.s) || r.s[i] == '}' {
			return min(i+1, len(r.s))
		}
	}
}

// location passes loc(...).
func (r *reader) location(i int) int {
	if at := skipSpace(r.s, i); strings.HasPrefix(r.s[at:], "loc") {
		if open := skipSpace(r.s, at+3); open < len(r.s) && r.s[open] == '(' {
			return r.group(open)
		}
	}
	return i
}

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
				op.Attrs = append(op.Attrs, Attr{word, s[value:i]})
				word = ""
			case word == "loc" && at < len(s) && s[at] == '(':
				i = r.group(at)
			case last != ',' && before != "applies" && r.starts(word, at):
				return start
			case word == "dense" || word == "array" || word == "dense_resource":
				i = r.value(i)
				op.Attrs = append(op.Attrs, Attr{"value", s[start:i]})
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

// starts tells whether a word begins an operation: one with a dialect, or one that needs
// none where it stands.
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

// parentheses reads what a custom form has in parentheses: operands, the arguments of a
// region, or of a function, or regions.
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
				op.Attrs = append(op.Attrs, Attr{key, value})
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

// value is the end of an attribute's value that starts at s[i]: one element, and what is
// tied to it, as in [b, f]x[i, o]->[b, f] or #dialect.name<...>.
func (r *reader) value(i int) int {
	s := r.s
	for i < len(s) {
		switch c := s[i]; {
		case c == '"':
			_, n := scanString(s[i:])
			return i + n
		case c == '[' || c == '{' || c == '(' || c == '<':
			i = r.group(i)
		case c == '#' || c == '!' || c == '@' || c == '%':
			if i++; i < len(s) && s[i] == '"' {
				_, n := scanString(s[i:])
				i += n
			} else {
				i = endOfSuffix(s, i)
			}
			if i < len(s) && s[i] == '<' {
				i = r.group(i)
			}
		case c == '-' || c == '+' || isName(c):
			start := i
			for i++; i < len(s) && (isName(s[i]) || (s[i] == '-' || s[i] == '+') && (s[i-1] == 'e' || s[i-1] == 'E')); {
				i++
			}
			if i < len(s) && (s[i] == '<' || s[i] == '(' && s[start:i] == "loc") {
				i = r.group(i)
			}
		default:
			return i
		}
		at := skipSpace(s, i)
		switch {
		case strings.HasPrefix(s[at:], "->"):
			at += 2
		case strings.HasPrefix(s[at:], "x") && (at+1 == len(s) || !isName(s[at+1])):
			at++
		case strings.HasPrefix(s[at:], "::"):
			at += 2
		default:
			return i
		}
		i = skipSpace(s, at)
	}
	return i
}

// types reads the type of an operation behind its colon.
func (r *reader) types(i int, op *Operation) int {
	types, end := r.typeList(i)
	if at := skipSpace(r.s, end); strings.HasPrefix(r.s[at:], "->") {
		op.Ins = types
		op.Outs, end = r.typeList(at + 2)
		return end
	}
	op.Ins, op.Outs = types, types // operands and results have the same
	return end
}

// typeList reads t, t or (t, t).
func (r *reader) typeList(i int) (list []string, end int) {
	s := r.s
	if at := skipSpace(s, i); at < len(s) && s[at] == '(' {
		end := r.group(at)
		return splitList(s[at+1 : max(end-1, at+1)]), end
	}
	for end = i; ; {
		at := skipSpace(s, end)
		if len(list) > 0 {
			if at >= len(s) || s[at] != ',' {
				return list, end
			}
			at = skipSpace(s, at+1)
		}
		stop := endOfType(s, at)
		if stop == at {
			return list, max(end, i)
		}
		list, end = append(list, s[at:stop]), stop
	}
}

// endOfType is the end of a type at s[i], i if there is none.
func endOfType(s string, i int) int {
	start := i
	if i < len(s) && s[i] == '!' {
		i++
		i = endOfSuffix(s, i)
	} else {
		i = endOfName(s, i)
	}
	if i > start && i < len(s) && s[i] == '<' {
		if end := endOfGroup(s, i); end > 0 {
			return end
		}
		return len(s)
	}
	return i
}

// endOfOperand is the end of %name or %name#1.
func endOfOperand(s string, i int) int {
	i = endOfSuffix(s, i+1)
	if i < len(s) && s[i] == '#' {
		i = endOfName(s, i+1)
	}
	return i
}
