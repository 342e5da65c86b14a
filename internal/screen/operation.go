package screen

import (
	"encoding/hex"
	"math"
	"strconv"
	"strings"
)

// Operation is one operation of a program: of text, or as whoever made the program knows it.
type Operation struct {
	// Name is the name with its dialect, "stablehlo.pad".
	Name string
	// Results and Operands are names such as %x, operands also %x#1, a result of many.
	Results, Operands []string
	// Symbol is the symbol behind the name, as a function or a custom call has it, without its @;
	// Symbols are all.
	Symbol  string
	Symbols []string
	// Words are the words that a custom form has without a name, such as LT.
	Words []string
	// Attrs are the attributes, each with its own text and no more; Borders those of a function's
	// arguments and results.
	Attrs, Borders []Attr
	borderTypes    []string // of what each of Borders stands at
	// Ins and Outs are the types of the operands and of the results.
	Ins, Outs []string
	// InDims and OutDims are the dimensions of the same types, where they are known without
	// reading the types.
	InDims, OutDims [][]int64
	// Regions are the operations within.
	Regions []*Region

	// Where it stands in the text: from its results, its name, to its end, and its operands.
	at, name, end           int
	operandsAt, operandsEnd int
}

// Attr is an attribute: its name, and the text of its value, "" for one that has none. Numbers are
// those of the value where they are known without reading the text, otherwise nil.
type Attr struct {
	Key, Value string
	Numbers    []int64
}

// Region is a list of operations with the names of its arguments.
type Region struct {
	Args []string
	Ops  []*Operation
}

// dialect cuts a name in two.
func (op *Operation) dialect() (dialect, short string) {
	if at := strings.LastIndexByte(op.Name, '.'); at >= 0 {
		return op.Name[:at], op.Name[at+1:]
	}
	return "", op.Name
}

// has tells whether there is an attribute, and answers its value.
func (op *Operation) has(key string) (string, bool) { return lookup(op.Attrs, key) }

func lookup(attrs []Attr, key string) (string, bool) {
	for _, a := range attrs {
		if a.Key == key {
			return a.Value, true
		}
	}
	return "", false
}

// numbers are those of an attribute; ok is false if there is none of the name.
func (f *checker) numbers(op *Operation, key string) (list []int64, ok bool) {
	for _, a := range op.Attrs {
		if a.Key == key {
			return f.numbersOf(a), true
		}
	}
	return nil, false
}

func (f *checker) numbersOf(a Attr) []int64 {
	if a.Numbers != nil {
		return a.Numbers
	}
	return integersIn(f.resolve(a.Value))
}

// dims are the dimensions of the first of an operation's operands or results.
func (f *checker) dims(known [][]int64, types []string) (dims []int64, ok bool) {
	if len(known) > 0 {
		return known[0], true
	}
	return tensorDims(f.resolve(types[0]))
}

// get is the value of an attribute, "" if there is none.
func (op *Operation) get(key string) string {
	v, _ := op.has(key)
	return v
}

// text is the value of a string attribute.
func (op *Operation) text(key string) (string, bool) {
	v, ok := op.has(key)
	if !ok || !strings.HasPrefix(v, `"`) {
		return "", false
	}
	s, _ := scanString(v)
	return s, true
}

// symbols are those of the operation, of its attributes too.
func (op *Operation) symbols() []string {
	all := op.Symbols
	for _, a := range op.Attrs {
		if strings.IndexByte(a.Value, '@') >= 0 {
			all = append(all[:len(all):len(all)], symbolsIn(a.Value)...)
		}
	}
	return all
}

// symbolsIn are the symbols of an attribute's text.
func symbolsIn(s string) (names []string) {
	for i := 0; i < len(s); {
		switch s[i] {
		case '"':
			_, n := scanString(s[i:])
			i += n
		case '@':
			var name string
			name, i = readSymbol(s, i)
			names = append(names, name)
		default:
			i++
		}
	}
	return names
}

// addOperands takes the operands of the generic form.
func (op *Operation) addOperands(list string) {
	for i := 0; i < len(list); {
		switch c := list[i]; {
		case c == '%':
			end := endOfOperand(list, i)
			op.Operands = append(op.Operands, list[i:end])
			i = end
		case c == '/':
			i = max(skipSpace(list, i), i+1)
		default:
			i++
		}
	}
}

// addAttrs takes the entries of {k = v, ...} or <{k = v, ...}>.
func (op *Operation) addAttrs(s string) { op.Attrs = append(op.Attrs, dictionaryOf(s)...) }

// dictionaryOf reads {k = v, ...} or <{k = v, ...}>.
func dictionaryOf(s string) (attrs []Attr) {
	if s = strings.TrimSpace(s); len(s) < 2 {
		return nil
	}
	if s[0] == '<' {
		s = strings.TrimSpace(s[1 : len(s)-1])
	}
	inside, ok := strings.CutPrefix(s, "{")
	if !ok {
		return nil
	}
	for _, entry := range splitList(strings.TrimSuffix(inside, "}")) {
		if key, value, ok := attribute(entry); ok {
			attrs = append(attrs, Attr{Key: key, Value: value})
		}
	}
	return attrs
}

// attribute reads k = v, "k" = v or k.
func attribute(entry string) (key, value string, ok bool) {
	i := 0
	if entry[0] == '"' {
		key, i = scanString(entry)
	} else {
		i = endOfName(entry, 0)
		key = entry[:i]
	}
	if i = skipSpace(entry, i); i < len(entry) && entry[i] == '=' {
		value = strings.TrimSpace(entry[skipSpace(entry, i+1):])
	}
	return key, value, key != ""
}

// arguments reads a function's: their types and names, and their attributes.
func (op *Operation) arguments(list string) (types, names []string) {
	for _, e := range splitList(list) {
		if e[0] == '%' {
			end := endOfSuffix(e, 1)
			names = append(names, e[:end])
			if e = e[skipSpace(e, end):]; e == "" || e[0] != ':' {
				continue
			}
			e = e[skipSpace(e, 1):]
		}
		types = append(types, op.withoutAttrs([]string{e})...)
	}
	return types, names
}

// withoutAttrs takes the attributes behind types, which are a function's.
func (op *Operation) withoutAttrs(list []string) []string {
	types := list[:0:0]
	for _, e := range list {
		end := endOfType(e, 0)
		if end == 0 {
			continue
		}
		types = append(types, e[:end])
		if at := skipSpace(e, end); at < len(e) && e[at] == '{' {
			if stop := endOfGroup(e, at); stop > 0 {
				op.addBorders(e[:end], dictionaryOf(e[at:stop]))
			}
		}
	}
	return types
}

func (op *Operation) addBorders(of string, attrs []Attr) {
	for _, a := range attrs {
		op.Borders, op.borderTypes = append(op.Borders, a), append(op.borderTypes, of)
	}
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

// integersIn are the numbers of an attribute such as [1, 2], dense<[[1, -2]]> : tensor<1x2xi64>,
// dense<"0x0100"> or array<i64: 1, 2>. One that needs more than 64 bits is the largest there is.
func integersIn(s string) (list []int64) {
	if blob, ok := strings.CutPrefix(s, `dense<"0x`); ok {
		return littleEndian(blob)
	}
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
		digits := i
		for i < len(s) && isName(s[i]) {
			i++
		}
		if i == digits || s[digits] < '0' || s[digits] > '9' {
			i = max(i, start+1)
			continue
		}
		if number := s[start:i]; strings.HasPrefix(s[digits:], "0x") {
			n, err := strconv.ParseUint(s[digits+2:i], 16, 64)
			if err != nil {
				n = math.MaxInt64
			}
			list = append(list, int64(n))
		} else {
			n, _ := strconv.ParseInt(number, 10, 64)
			list = append(list, n)
		}
	}
	return list
}

// littleEndian reads the bytes of dense<"0x..."> : tensor<2xi64>.
func littleEndian(s string) (list []int64) {
	digits, typ, _ := strings.Cut(s, `"`)
	width := 8
	for bits, n := range map[string]int{"i8>": 1, "i16>": 2, "i32>": 4, "i1>": 1} {
		if strings.HasSuffix(strings.TrimSpace(typ), bits) {
			width = n
		}
	}
	data, err := hex.DecodeString(digits)
	if err != nil {
		return nil
	}
	for ; len(data) >= width; data = data[width:] {
		var n int64
		for k := width - 1; k >= 0; k-- {
			n = n<<8 | int64(data[k])
		}
		if shift := 64 - 8*width; shift > 0 {
			n = n << shift >> shift
		}
		list = append(list, n)
	}
	return list
}
