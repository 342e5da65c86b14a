package screen

import "strings"

// reader reads the text of MLIR into operations. It knows the generic form, in which every part has
// its place, and of custom forms what they have in common: operands, symbols, attributes, lists in
// brackets, types behind a colon, and regions. An operation ends where the next one begins. It goes
// over the text once and never back: what it does not understand it passes.
type reader struct {
	s       string
	aliases map[string]string // #name and !name, to their text
}

// read reads a whole file. The text's brackets are known to be nested no deeper than maxNesting.
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

// group is the end of the brackets that open at s[i]; the end of the text if they do not close.
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
