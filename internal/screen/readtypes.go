package screen

import "strings"

// value is the end of an attribute's value that starts at s[i]: one element, and what is tied to
// it, as in [b, f]x[i, o]->[b, f] or #dialect.name<...>.
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
