package screen

import (
	"strconv"
	"strings"
)

// operation is what the text of one operation says after its name.
type operation struct {
	target   string            // the symbol that it starts with
	operands []string          // as "%x"
	regions  []string          // in generic form, with their braces
	attrs    map[string]string // the text of each attribute's value
	ins      []string          // the types of the operands
	outs     []string          // the types of the results
	n        int               // how many bytes were read
}

// readOperation reads an operation after its name, in generic or in custom
// form, to the end of its type. ok is false if no type ends it.
func readOperation(s string) (op operation, ok bool) {
	op.attrs = map[string]string{}
	groups := 0
	for i := skipSpace(s, 0); i < len(s); i = skipSpace(s, i) {
		start := i
		switch c := s[i]; {
		case c == ':':
			i = op.types(s, i+1)
			op.n = i
			return op, i > 0
		case c == '@':
			op.target, i = readSymbol(s, i)
		case c == '%':
			i = endOfSuffix(s, i+1)
			op.operands = append(op.operands, s[start:i])
			if i = skipSpace(s, i); i < len(s) && s[i] == '=' {
				op.n = i
				return op, false // the next operation
			}
		case c == '(':
			if i = endOfGroup(s, i); i == 0 {
				op.n = len(s)
				return op, false
			}
			if inside := s[start+1 : i-1]; groups == 0 {
				op.operands = splitList(inside)
			} else {
				op.regions = splitList(inside)
			}
			groups++
		case c == '<' || c == '{' || c == '[':
			if i = endOfGroup(s, i); i == 0 {
				op.n = len(s)
				return op, false
			}
			if c != '[' {
				op.dictionary(s[start:i])
			}
		case c == '"':
			_, n := scanString(s[i:])
			i += n
		case c == '#':
			i = endOfName(s, i+1) // a result of many
		case isName(c):
			i = endOfName(s, i)
			if at := skipSpace(s, i); at < len(s) && s[at] == '=' {
				i = skipSpace(s, at+1)
				end := endOfValue(s, i)
				op.attrs[s[start:endOfName(s, start)]] = s[i:end]
				i = end
			}
		case c == ',':
			i++
		default:
			op.n = i
			return op, false
		}
	}
	op.n = len(s)
	return op, false
}

// types reads a function's type; it answers 0 if there is none.
func (op *operation) types(s string, i int) int {
	if i = skipSpace(s, i); i == len(s) || s[i] != '(' {
		return 0
	}
	end := endOfGroup(s, i)
	if end == 0 {
		return 0
	}
	op.ins = splitList(s[i+1 : end-1])
	if i = skipSpace(s, end); !strings.HasPrefix(s[i:], "->") {
		return 0
	}
	op.outs, i = readTypes(s, i+2)
	return i
}

// readTypes reads one type, or a list of them in parentheses.
func readTypes(s string, i int) (list []string, end int) {
	if i = skipSpace(s, i); i < len(s) && s[i] == '(' {
		if end = endOfGroup(s, i); end == 0 {
			return nil, 0
		}
		return splitList(s[i+1 : end-1]), end
	}
	start := i
	if i < len(s) && s[i] == '!' {
		i++
	}
	if i = endOfName(s, i); i < len(s) && s[i] == '<' {
		if i = endOfGroup(s, i); i == 0 {
			return nil, 0
		}
	}
	if i == start {
		return nil, 0
	}
	return []string{s[start:i]}, i
}

// dictionary takes the entries of {k = v, ...} or <{k = v, ...}>.
func (op *operation) dictionary(s string) {
	s = strings.TrimSpace(s[1 : len(s)-1])
	if strings.HasPrefix(s, "{") && strings.HasSuffix(s, "}") {
		s = s[1 : len(s)-1]
	}
	for _, entry := range splitList(s) {
		key, i := "", 0
		if entry[0] == '"' {
			key, i = scanString(entry)
		} else {
			i = endOfName(entry, 0)
			key = entry[:i]
		}
		value := ""
		if i = skipSpace(entry, i); i < len(entry) && entry[i] == '=' {
			value = entry[skipSpace(entry, i+1):]
		}
		op.attrs[key] = value
	}
}

// text is the value of a string attribute.
func (op *operation) text(key string) (string, bool) {
	v, ok := op.attrs[key]
	if !ok || !strings.HasPrefix(v, `"`) {
		return "", false
	}
	s, _ := scanString(v)
	return s, true
}

// tensorDims are the dimensions of tensor<4x?xf32>, -1 for "?".
func tensorDims(t string) (dims []int64, ok bool) {
	s, ok := strings.CutPrefix(strings.TrimSpace(t), "tensor<")
	if !ok {
		return nil, false
	}
	for {
		n, rest, more := strings.Cut(s, "x")
		if !more {
			return dims, true
		}
		d, err := strconv.ParseInt(strings.TrimSpace(n), 10, 64)
		switch {
		case err == nil:
			dims = append(dims, d)
		case strings.TrimSpace(n) == "?":
			dims = append(dims, -1)
		default:
			return dims, true
		}
		s = rest
	}
}

// integersIn are the decimal numbers of an attribute such as [1, 2],
// dense<[[1, -2]]> : tensor<1x2xi64> or array<i64: 1, 2>. One that needs more
// than 64 bits is the largest there is.
func integersIn(s string) (list []int64) {
	if at := strings.IndexByte(s, '>'); at >= 0 {
		s = s[:at]
	}
	if inside, ok := strings.CutPrefix(s, "array<"); ok {
		_, s, _ = strings.Cut(inside, ":")
	}
	for i := 0; i < len(s); {
		start := i
		if s[i] == '-' {
			i++
		}
		for i < len(s) && s[i] >= '0' && s[i] <= '9' {
			i++
		}
		if i == start || s[start:i] == "-" {
			i = start + 1
			continue
		}
		n, _ := strconv.ParseInt(s[start:i], 10, 64)
		list = append(list, n)
	}
	return list
}
