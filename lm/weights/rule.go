package weights

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"

	"github.com/tpustrategy/tpustrategy/internal/strictjson"
)

// Rules say which variable each tensor of a file becomes. They are data: Go values, or JSON that
// [ParseRules] reads. Each tensor goes by the one rule that matches its name.
type Rules []Rule

// Rule says what becomes of the tensors whose names match.
type Rule struct {
	// Tensor is a regular expression of Go's package regexp for whole names, such as
	// `model\.layers\.(\d+)\.mlp\.up_proj\.weight`.
	Tensor string `json:"tensor"`
	// To are the variables that the tensor becomes: one, the parts of a fused tensor, or two that
	// share one tensor, such as tied embeddings.
	To []Target `json:"to,omitempty"`
	// Ignore says that the tensor is not needed. Such a rule has no To.
	Ignore bool `json:"ignore,omitempty"`
	// Optional says that files may have no such tensor. Without it, and without Ignore, a rule that
	// matches nothing is an error.
	Optional bool `json:"optional,omitempty"`
}

// Target is one variable that a tensor becomes, or a part of one.
type Target struct {
	// Variable is the variable's path, such as "/layers/w1" or "/layer{1:02}/w1": {1} is what the
	// pattern's first group matched, {1:02} the same number with at least two digits.
	Variable string `json:"variable"`
	// Steps are done to the tensor, in their order.
	Steps []Step `json:"steps,omitempty"`
	// Stack is the index of the slice of the variable's first dimension that the tensor becomes, of
	// a variable that is a stack of layers: "{1}", for example. Empty is no stack.
	Stack string `json:"stack,omitempty"`
	// Part puts the tensor beside others in one variable; nil is the whole variable, or the slice.
	Part *Part `json:"part,omitempty"`
	// Add is added to each element, in float64, before it is rounded to the variable's dtype: 1 for
	// norms whose weights are kept without the one.
	Add float64 `json:"add,omitempty"`
}

// Step is one change of a tensor's dimensions. One of the fields is set.
type Step struct {
	// Reshape gives the tensor other dimensions, row-major; one may be -1.
	Reshape []int `json:"reshape,omitempty"`
	// Transpose orders the dimensions: dimension i of the result is dimension Transpose[i].
	Transpose []int `json:"transpose,omitempty"`
	// Cut takes a range of one dimension.
	Cut *Cut `json:"cut,omitempty"`
}

// Cut is a range of a dimension: part Part of Of equal ones, or From to To where Of is 0.
type Cut struct {
	Dim  int `json:"dim"`
	Part int `json:"part,omitempty"`
	Of   int `json:"of,omitempty"`
	From int `json:"from,omitempty"`
	To   int `json:"to,omitempty"`
}

// Part is the place of a tensor in a variable that several tensors make up along a dimension: part
// Part of Of equal ones, or from index From on where Of is 0. The dimension is the variable's,
// without that of a stack.
type Part struct {
	Dim  int `json:"dim"`
	Part int `json:"part,omitempty"`
	Of   int `json:"of,omitempty"`
	From int `json:"from,omitempty"`
}

// bounds are the first index and that after the last.
func (c Cut) bounds(size int64) (from, to int64, err error) {
	if c.Of != 0 {
		switch {
		case c.Of < 0 || c.Part < 0 || c.Part >= c.Of || c.From != 0 || c.To != 0:
			return 0, 0, fmt.Errorf("part %d of %d is no part", c.Part, c.Of)
		case size%int64(c.Of) != 0:
			return 0, 0, fmt.Errorf("dimension %d of %d does not divide by %d", c.Dim, size, c.Of)
		}
		each := size / int64(c.Of)
		return int64(c.Part) * each, int64(c.Part+1) * each, nil
	}
	if c.From < 0 || c.To <= c.From || int64(c.To) > size || c.Part != 0 {
		return 0, 0, fmt.Errorf("the range %d:%d of dimension %d, which has %d", c.From, c.To, c.Dim, size)
	}
	return int64(c.From), int64(c.To), nil
}

// ParseRules reads rules from JSON: a list of objects with the names of the fields in small
// letters. Names that are not there are errors.
func ParseRules(data []byte) (Rules, error) {
	var rules Rules
	if err := strictjson.Decode(data, &rules); err != nil {
		return nil, inRule(len(rules), "JSON", "not read", `write a list such as [{"tensor": "...", "to": [{"variable": "/..."}]}]`, err)
	}
	if _, err := rules.compile(); err != nil {
		return nil, err
	}
	return rules, nil
}

// compile checks the rules and returns their patterns.
func (r Rules) compile() ([]*regexp.Regexp, error) {
	var patterns []*regexp.Regexp
	for i, rule := range r {
		fail := func(err error, hint, format string, args ...any) error {
			return inRule(i, rule.Tensor, fmt.Sprintf(format, args...), hint, err)
		}
		p, err := regexp.Compile(`^(?:` + rule.Tensor + `)$`)
		if err != nil {
			return nil, fail(err, "", "no pattern")
		}
		if rule.Tensor == "" || rule.Ignore == (len(rule.To) > 0) {
			return nil, fail(nil, "give it a pattern, and targets or Ignore", "it says nothing, or two things")
		}
		for _, t := range rule.To {
			if t.Variable == "" || t.Variable[0] != '/' {
				return nil, fail(nil, `write "/`+t.Variable+`"`, "the variable %q has no path from the root", t.Variable)
			}
			for _, template := range []string{t.Variable, t.Stack} {
				if err := checkTemplate(template, p.NumSubexp()); err != nil {
					return nil, fail(err, "write {1} for the first group, {1:02} with two digits", "the text %q", template)
				}
			}
			for _, s := range t.Steps {
				if n := count(s.Reshape != nil, s.Transpose != nil, s.Cut != nil); n != 1 {
					return nil, fail(nil, "give one Reshape, Transpose or Cut", "a step of variable %q has %d changes", t.Variable, n)
				}
			}
			if p := t.Part; p != nil && (p.Dim < 0 || p.Of < 0 || p.From < 0 || p.Part < 0 || p.Of > 0 && (p.Part >= p.Of || p.From != 0) || p.Of == 0 && p.Part != 0) {
				return nil, fail(nil, "give Part and Of, or From", "the part of variable %q is none", t.Variable)
			}
		}
		patterns = append(patterns, p)
	}
	return patterns, nil
}

func count(all ...bool) (n int) {
	for _, b := range all {
		if b {
			n++
		}
	}
	return n
}

var place = regexp.MustCompile(`\{([^{}]*)\}`)
var placed = regexp.MustCompile(`^(\d{1,3})(?::0?(\d))?$`)

// checkTemplate refuses places of groups that are not there.
func checkTemplate(template string, groups int) error {
	for _, m := range place.FindAllStringSubmatch(template, -1) {
		of := placed.FindStringSubmatch(m[1])
		if of == nil {
			return fmt.Errorf("%s is no place of a group", m[0])
		}
		if n, _ := strconv.Atoi(of[1]); n > groups {
			return fmt.Errorf("%s, and the pattern has %d groups", m[0], groups)
		}
	}
	return nil
}

// expand fills in a template. groups are those of a match, of which the first is the whole.
func expand(template string, groups []string) string {
	return place.ReplaceAllStringFunc(template, func(text string) string {
		of := placed.FindStringSubmatch(text[1 : len(text)-1])
		n, _ := strconv.Atoi(of[1])
		value := groups[n]
		if width, _ := strconv.Atoi(of[2]); len(value) < width {
			value = string(slices.Repeat([]byte{'0'}, width-len(value))) + value
		}
		return value
	})
}
