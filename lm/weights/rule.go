package weights

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"

	"github.com/tpustrategy/tpustrategy/internal/strictjson"
)

// Rules map the tensors of files to variables. They are Go values, or JSON that [ParseRules]
// parses. Exactly one rule must match the name of each tensor.
type Rules []Rule

// Rule maps the tensors with matching names to variables.
type Rule struct {
	// Tensor is a regular expression of Go's package regexp for complete names, such as
	// `model\.layers\.(\d+)\.mlp\.up_proj\.weight`.
	Tensor string `json:"tensor"`
	// To are the variables that the tensor fills: one variable, several for the parts of a fused
	// tensor, or two that share one tensor, such as tied embeddings.
	To []Target `json:"to,omitempty"`
	// Ignore means that the tensor is not used. To must be empty then.
	Ignore bool `json:"ignore,omitempty"`
	// Optional means that the files may have no such tensor. A rule that matches nothing is an
	// error unless Optional or Ignore is set.
	Optional bool `json:"optional,omitempty"`
}

// Target is a variable, or a part of a variable, that a tensor fills.
type Target struct {
	// Variable is the variable's path, such as "/layers/w1" or "/layer{1:02}/w1": {1} is replaced
	// by the match of the pattern's first group, and {1:02} by the same number with at least two
	// digits.
	Variable string `json:"variable"`
	// Steps are applied to the tensor, in this order.
	Steps []Step `json:"steps,omitempty"`
	// Stack is the index in the first dimension of a variable that stacks layers, for example
	// "{1}". It is empty for variables that are not stacks.
	Stack string `json:"stack,omitempty"`
	// Segment is the range of a variable that several tensors fill together. nil means the complete
	// variable, or the complete layer of a stack.
	Segment *Segment `json:"part,omitempty"`
	// Add is added to each element, in float64, before rounding to the variable's dtype: 1 for
	// normalization scales that are stored minus 1.
	Add float64 `json:"add,omitempty"`
}

// Step changes the dimensions of a tensor. Exactly one field must be set.
type Step struct {
	// Reshape are the new dimensions, row-major. One of them may be -1.
	Reshape []int `json:"reshape,omitempty"`
	// Transpose permutes the dimensions: dimension i of the result is dimension Transpose[i] of the
	// tensor.
	Transpose []int `json:"transpose,omitempty"`
	// Slice selects a range of one dimension.
	Slice *Slice `json:"cut,omitempty"`
}

// Slice is a range of dimension Dim. If Parts is not 0, the dimension is divided into Parts equal
// ranges, and Index selects one of them. Otherwise the range is from Start (inclusive) to End
// (exclusive).
type Slice struct {
	Dim   int `json:"dim"`
	Index int `json:"part,omitempty"`
	Parts int `json:"of,omitempty"`
	Start int `json:"from,omitempty"`
	End   int `json:"to,omitempty"`
}

// Segment is the range of dimension Dim that one of several tensors fills in a variable. If Parts
// is not 0, the dimension is divided into Parts equal ranges, and Index selects one of them.
// Otherwise the range begins at Start. In a variable that stacks layers, Dim does not count the
// dimension of the stack.
type Segment struct {
	Dim   int `json:"dim"`
	Index int `json:"part,omitempty"`
	Parts int `json:"of,omitempty"`
	Start int `json:"from,omitempty"`
}

// bounds returns the first index of the range (inclusive) and its end (exclusive) in a dimension of
// the given size.
func (c Slice) bounds(size int64) (start, end int64, err error) {
	if c.Parts != 0 {
		switch {
		case c.Parts < 0 || c.Index < 0 || c.Index >= c.Parts || c.Start != 0 || c.End != 0:
			return 0, 0, fmt.Errorf("there is no part %d of %d", c.Index, c.Parts)
		case size%int64(c.Parts) != 0:
			return 0, 0, fmt.Errorf("dimension %d of %d does not divide by %d", c.Dim, size, c.Parts)
		}
		each := size / int64(c.Parts)
		return int64(c.Index) * each, int64(c.Index+1) * each, nil
	}
	if c.Start < 0 || c.End <= c.Start || int64(c.End) > size || c.Index != 0 {
		return 0, 0, fmt.Errorf("the range %d:%d of dimension %d, which has %d", c.Start, c.End, c.Dim, size)
	}
	return int64(c.Start), int64(c.End), nil
}

// ParseRules parses rules from JSON: a list of objects in the format that json.Marshal writes for
// [Rules]. Unknown keys are errors.
func ParseRules(data []byte) (Rules, error) {
	var rules Rules
	if err := strictjson.Decode(data, &rules); err != nil {
		return nil, ruleError(len(rules), "JSON", "not read",
			`write a list such as [{"tensor": "...", "to": [{"variable": "/..."}]}]`, err)
	}
	if _, err := rules.compilePatterns(); err != nil {
		return nil, err
	}
	return rules, nil
}

// compilePatterns checks the rules and compiles their regular expressions.
func (r Rules) compilePatterns() ([]*regexp.Regexp, error) {
	var patterns []*regexp.Regexp
	for i, rule := range r {
		fail := func(err error, hint, format string, args ...any) error {
			return ruleError(i, rule.Tensor, fmt.Sprintf(format, args...), hint, err)
		}
		p, err := regexp.Compile(`^(?:` + rule.Tensor + `)$`)
		if err != nil {
			return nil, fail(err, "", "an invalid pattern")
		}
		if rule.Tensor == "" || rule.Ignore == (len(rule.To) > 0) {
			return nil, fail(nil, "set Tensor, and either To or Ignore", "it needs either targets or Ignore")
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
				if n := countTrue(s.Reshape != nil, s.Transpose != nil, s.Slice != nil); n != 1 {
					return nil, fail(nil, "give one Reshape, Transpose or Cut", "a step of variable %q has %d changes", t.Variable, n)
				}
			}
			if p := t.Segment; p != nil && (p.Dim < 0 || p.Parts < 0 || p.Start < 0 || p.Index < 0 ||
				p.Parts > 0 && (p.Index >= p.Parts || p.Start != 0) || p.Parts == 0 && p.Index != 0) {
				return nil, fail(nil, "give Part and Of, or From", "the segment of variable %q is invalid", t.Variable)
			}
		}
		patterns = append(patterns, p)
	}
	return patterns, nil
}

func countTrue(all ...bool) (n int) {
	for _, b := range all {
		if b {
			n++
		}
	}
	return n
}

var referencePattern = regexp.MustCompile(`\{([^{}]*)\}`)
var groupPattern = regexp.MustCompile(`^(\d{1,3})(?::0?(\d))?$`)

// checkTemplate returns an error if the template refers to a group that the pattern does not have.
func checkTemplate(template string, groups int) error {
	for _, m := range referencePattern.FindAllStringSubmatch(template, -1) {
		ref := groupPattern.FindStringSubmatch(m[1])
		if ref == nil {
			return fmt.Errorf("%s is no reference to a group", m[0])
		}
		if n, _ := strconv.Atoi(ref[1]); n > groups {
			return fmt.Errorf("%s, and the pattern has %d groups", m[0], groups)
		}
	}
	return nil
}

// expandTemplate replaces references such as {1} in a template with the matched groups. groups is a
// result of FindStringSubmatch.
func expandTemplate(template string, groups []string) string {
	return referencePattern.ReplaceAllStringFunc(template, func(text string) string {
		ref := groupPattern.FindStringSubmatch(text[1 : len(text)-1])
		n, _ := strconv.Atoi(ref[1])
		value := groups[n]
		if width, _ := strconv.Atoi(ref[2]); len(value) < width {
			value = string(slices.Repeat([]byte{'0'}, width-len(value))) + value
		}
		return value
	})
}
