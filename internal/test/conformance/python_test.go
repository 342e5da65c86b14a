package conformance

import (
	"encoding/json"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"
)

// Cases contain a replica's value as a Python expression of its ID: id+1, [id, id+10],
// tf.constant([id, 2.]), tf.range(id + 1), {"a": id}. Text after the expression states where the
// value is created, which is in each replica.

// python evaluates the expression in text for a replica. It returns lists and dictionaries of
// json.Number, which distinguishes 1 from 1.0.
func python(c *caseRun, text string, id int) any {
	p := &expression{text: text, names: map[string]any{}}
	for _, name := range []string{"id", "replica_id", "replica_id_in_sync_group", "rid", "r", "i", "rank"} {
		p.names[name] = int64(id)
	}
	for _, name := range []string{"n", "num_replicas", "num_replicas_in_sync"} {
		p.names[name] = int64(c.replicas)
	}
	x, err := p.parse()
	if err != nil {
		c.unmapped("expression %q: %v", text, err)
	}
	return numbersOf(x)
}

// evaluate is like python, but returns all numbers as float64.
func evaluate(c *caseRun, text string, id int) any { return floats(python(c, text, id)) }

func floats(x any) any {
	switch x := x.(type) {
	case json.Number:
		f, _ := x.Float64()
		return f
	case []any:
		list := make([]any, len(x))
		for i := range x {
			list[i] = floats(x[i])
		}
		return list
	}
	return x
}

// numbersOf converts the value of an expression to the cases' form.
func numbersOf(x any) any {
	switch x := x.(type) {
	case int64:
		return json.Number(strconv.FormatInt(x, 10))
	case float64:
		text := strconv.FormatFloat(x, 'g', -1, 64)
		if !strings.ContainsAny(text, ".eEnI") {
			text += ".0"
		}
		return json.Number(text)
	case array:
		return numbersOf([]any(x))
	case []any:
		list := make([]any, len(x))
		for i := range x {
			list[i] = numbersOf(x[i])
		}
		return list
	case map[string]any:
		m := map[string]any{}
		for k := range x {
			m[k] = numbersOf(x[k])
		}
		return m
	}
	return x
}

// jsonNumber converts a float to the cases' notation.
func jsonNumber(x float64) json.Number { return numbersOf(x).(json.Number) }

// array is a tensor with elementwise operators. A []any is a Python list.
type array []any

// expression is a parser of expressions.
type expression struct {
	text  string
	names map[string]any
}

// where matches the text that may follow an expression.
var where = regexp.MustCompile(
	`^,? ?((a|one) )?((fresh|made|new|different|computed|summed|placed|in|on|per|of|for|from|at)\b.*)?$`)

func (p *expression) parse() (x any, err error) {
	defer func() {
		if e, ok := recover().(parseError); ok {
			err = e
		}
	}()
	x = p.tuple()
	if rest := p.rest(); !where.MatchString(rest) {
		p.fail("%q is left over", rest)
	}
	return x, nil
}

type parseError string

func (e parseError) Error() string { return string(e) }

func (p *expression) fail(format string, args ...any) {
	panic(parseError(fmt.Sprintf(format, args...)))
}

func (p *expression) rest() string {
	p.text = strings.TrimLeft(p.text, " \t\n")
	return p.text
}

// take consumes token if the rest of the text starts with it. A word must match a whole word.
func (p *expression) take(token string) bool {
	rest := p.rest()
	if !strings.HasPrefix(rest, token) {
		return false
	}
	after := rest[len(token):]
	if unicode.IsLetter(rune(token[0])) && after != "" && (after[0] == '_' || unicode.IsLetter(rune(after[0])) ||
		unicode.IsDigit(rune(after[0]))) {
		return false
	}
	p.text = after
	return true
}

func (p *expression) want(token string) {
	if !p.take(token) {
		p.fail("%q is missing before %q", token, p.rest())
	}
}

// tuple parses expressions that are separated by commas.
func (p *expression) tuple() any {
	x := p.conditional()
	if list, more := p.more(x); more {
		return list
	}
	return x
}

func (p *expression) more(first any) ([]any, bool) {
	list := []any{first}
	before := p.text
	for p.take(",") {
		if rest := p.rest(); rest == "" || rest[0] == ')' || unicode.IsLetter(rune(rest[0])) && where.MatchString(rest) {
			if len(list) == 1 && rest != "" && rest[0] != ')' {
				p.text = before
				return list, false
			}
			return list, true
		}
		list = append(list, p.conditional())
	}
	return list, len(list) > 1
}

func (p *expression) conditional() any {
	x := p.comparison()
	if !p.take("if") {
		return x
	}
	condition := p.comparison()
	p.want("else")
	if other := p.conditional(); condition != true {
		return other
	}
	return x
}

func (p *expression) comparison() any {
	x := p.operators(0)
	for _, op := range []string{"==", "!=", "<=", ">=", "<", ">"} {
		if p.take(op) {
			a, b := number(p, x), number(p, p.operators(0))
			return map[string]bool{"==": a == b, "!=": a != b, "<=": a <= b, ">=": a >= b, "<": a < b, ">": a > b}[op]
		}
	}
	return x
}

var precedence = [][]string{{"+", "-"}, {"//", "*", "/", "%"}}

func (p *expression) operators(level int) any {
	if level == len(precedence) {
		return p.unary()
	}
	x := p.operators(level + 1)
next:
	for {
		for _, op := range precedence[level] {
			if strings.HasPrefix(p.rest(), "**") {
				break
			}
			if p.take(op) {
				x = p.apply(op, x, p.operators(level+1))
				continue next
			}
		}
		return x
	}
}

func (p *expression) unary() any {
	if p.take("-") {
		return p.apply("-", int64(0), p.unary())
	}
	if p.take("+") {
		return p.unary()
	}
	x := p.atom()
	if p.take("**") {
		return p.apply("**", x, p.unary())
	}
	return x
}

var (
	literal = regexp.MustCompile(`^(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?`)
	dotted  = regexp.MustCompile(`^[A-Za-z_]\w*(\.[A-Za-z_]\w*)*`)
	quoted  = regexp.MustCompile(`^("[^"]*"|'[^']*')`)
)

func (p *expression) atom() any {
	rest := p.rest()
	switch {
	case p.take("("):
		if p.take(")") {
			return []any{}
		}
		x := p.tuple()
		p.want(")")
		return x
	case p.take("["):
		list := []any{}
		for !p.take("]") {
			if len(list) > 0 {
				p.want(",")
				if p.take("]") {
					break
				}
			}
			list = append(list, p.conditional())
		}
		return list
	case p.take("{"):
		m := map[string]any{}
		for !p.take("}") {
			if len(m) > 0 {
				p.want(",")
			}
			key := fmt.Sprint(p.conditional())
			p.want(":")
			m[key] = p.conditional()
		}
		return m
	}
	if m := quoted.FindString(rest); m != "" {
		p.text = rest[len(m):]
		return m[1 : len(m)-1]
	}
	if m := literal.FindString(rest); m != "" {
		p.text = rest[len(m):]
		if i, err := strconv.ParseInt(m, 10, 64); err == nil {
			return i
		}
		f, err := strconv.ParseFloat(m, 64)
		if err != nil {
			p.fail("number %q", m)
		}
		return f
	}
	m := dotted.FindString(rest)
	if m == "" {
		p.fail("%q is no expression", rest)
	}
	p.text = rest[len(m):]
	last := m[strings.LastIndexByte(m, '.')+1:]
	if p.take("(") {
		return p.call(last)
	}
	if x, ok := p.names[last]; ok {
		return x
	}
	if m == "True" || m == "False" {
		return m == "True"
	}
	if m == "None" {
		return nil
	}
	if strings.HasPrefix(m, "tf.") || strings.HasPrefix(m, "np.") {
		return dtypeName(last)
	}
	p.fail("name %q", m)
	return nil
}

// dtypeName is a dtype argument of a call.
type dtypeName string

// call evaluates a call of a Python, TensorFlow or NumPy function.
func (p *expression) call(name string) any {
	var args []any
	var dtype dtypeName
	for !p.take(")") {
		if len(args) > 0 || dtype != "" {
			p.want(",")
			if p.take(")") {
				break
			}
		}
		keyword := regexp.MustCompile(`^(\w+)\s*=\s*[^=]`).FindStringSubmatch(p.rest())
		if keyword != nil {
			p.take(keyword[1])
			p.take("=")
		}
		switch x := p.conditional(); y := x.(type) {
		case dtypeName:
			dtype = y
		case string:
			dtype = dtypeName(y)
		default:
			if keyword == nil || keyword[1] != "name" {
				args = append(args, x)
			}
		}
	}
	if len(args) == 0 {
		if p.take(".") { // such as get_replica_context().replica_id_in_sync_group
			name = dotted.FindString(p.rest())
			p.take(name)
			if x, ok := p.names[name]; ok {
				return x
			}
		}
		p.fail("%s without arguments", name)
	}
	x := args[0]
	switch name {
	case "constant", "array", "convert_to_tensor", "asarray", "identity", "Variable", "cast":
		x = arrayOf(x)
	case "float", "float32", "float64":
		dtype, x = "float32", arrayOf(x)
	case "int", "int32", "int64":
		dtype, x = "int32", arrayOf(x)
	case "list", "tuple":
	case "range":
		start, limit, delta := 0.0, number(p, x), 1.0
		if len(args) > 1 {
			start, limit = limit, number(p, args[1])
		}
		if len(args) > 2 {
			delta = number(p, args[2])
		}
		list := array{}
		for at := start; delta > 0 && at < limit || delta < 0 && at > limit; at += delta {
			if slices.ContainsFunc(args, func(x any) bool { _, ok := x.(float64); return ok }) {
				list = append(list, at)
			} else {
				list = append(list, int64(at))
			}
		}
		x = list
	case "ones", "zeros", "fill":
		fill := any(map[string]float64{"ones": 1}[name])
		if name == "fill" {
			if len(args) < 2 {
				p.fail("fill without a value")
			}
			fill = args[1]
		}
		dims, ok := x.([]any)
		if !ok {
			dims = []any{x}
		}
		x = fill
		for i := len(dims) - 1; i >= 0; i-- {
			list := make(array, int(number(p, dims[i])))
			for j := range list {
				list[j] = x
			}
			x = list
		}
	default:
		p.fail("function %q", name)
	}
	switch {
	case strings.Contains(string(dtype), "float"):
		return p.apply("*", x, 1.0)
	case strings.Contains(string(dtype), "int"):
		return truncated(x)
	}
	return x
}

func arrayOf(x any) any {
	if list, ok := x.([]any); ok {
		return array(list)
	}
	return x
}

func truncated(x any) any {
	switch x := x.(type) {
	case float64:
		return int64(x)
	case array:
		list := make(array, len(x))
		for i := range x {
			list[i] = truncated(arrayOf(x[i]))
		}
		return list
	}
	return x
}

func number(p *expression, x any) float64 {
	switch x := x.(type) {
	case int64:
		return float64(x)
	case float64:
		return x
	}
	p.fail("%v is no number", x)
	return 0
}

// apply applies an operator to numbers, elementwise to tensors, or to lists with Python's
// semantics.
func (p *expression) apply(op string, a, b any) any {
	la, isA := a.([]any)
	lb, isB := b.([]any)
	if isA && isB && op == "+" {
		return slices.Concat(la, lb)
	}
	if times, ok := b.(int64); isA && ok && op == "*" {
		return slices.Repeat(la, int(max(times, 0)))
	}
	if times, ok := a.(int64); isB && ok && op == "*" {
		return slices.Repeat(lb, int(max(times, 0)))
	}
	x, arrayA := arrayOf(a).(array)
	y, arrayB := arrayOf(b).(array)
	if arrayA || arrayB {
		size := max(len(x), len(y))
		if arrayA && arrayB && len(x) != len(y) {
			p.fail("shapes of %v and %v", a, b)
		}
		list := make(array, size)
		for i := range list {
			u, w := a, b
			if arrayA {
				u = arrayOf(x[i])
			}
			if arrayB {
				w = arrayOf(y[i])
			}
			list[i] = p.apply(op, u, w)
		}
		return list
	}
	u, w := number(p, a), number(p, b)
	var out float64
	switch op {
	case "+":
		out = u + w
	case "-":
		out = u - w
	case "*":
		out = u * w
	case "/":
		return u / w
	case "//":
		out = math.Floor(u / w)
	case "%":
		out = u - w*math.Floor(u/w)
	case "**":
		out = math.Pow(u, w)
	}
	_, intA := a.(int64)
	_, intB := b.(int64)
	if intA && intB && out == math.Trunc(out) {
		return int64(out)
	}
	return out
}
