package gomlx

import (
	"fmt"
	"regexp"
	"slices"

	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/sharding"
)

// Rule says how the variables that it matches are split over the mesh. It has either a Split, or
// axes in Largest. A Rule is a value.
type Rule struct {
	// Pattern is searched for in the variable's path, which GoMLX gives as the parameter's name, such
	// as "/hidden/dense/weights". For the state that GoMLX's optimizers and its accumulation of
	// gradients keep of a variable, it is searched for in the path of that variable, too.
	Pattern *regexp.Regexp
	// Split says which axes split each dimension: logical.Over("", "logical"), with axes of the mesh,
	// "replica" among them. It reaches only variables of as many dimensions as it has entries. A
	// dimension that its axes do not divide stays whole. logical.Replicated() keeps the variable
	// whole, whatever later rules say.
	Split logical.Annotation
	// Largest are axes that split the largest dimension that they divide, and that no Split splits.
	// They come on top of what a rule with a Split says, unless that uses the axes.
	Largest []string
	// Smallest is the number of elements from which on Largest splits a variable; 0 stands for
	// 1024. Each variable in parts has collectives of its own.
	Smallest int
	// Optional allows that the rule reaches no variable.
	Optional bool
	// Required makes an error of what is only reported otherwise: a variable that the rule matches and
	// cannot split as it says, and that no variable is reached by the first program that takes
	// variables and data.
	Required bool
}

// Rules split variables by path. Of the rules with a Split that reach a variable the first counts,
// and those with Largest come on top, each over axes that nothing before it has used; a rule that
// replicates ends the search. A variable that no rule reaches is whole on every device.
type Rules []Rule

// smallest is the Smallest of the zero value.
const smallest = 1024

// Match returns a rule for the paths that match a regular expression. It panics if the expression
// does not compile, as regexp.MustCompile does.
func Match(pattern string, split logical.Annotation) Rule {
	return Rule{Pattern: regexp.MustCompile(pattern), Split: split}
}

// String returns the rule as in `"/dense/weights$" to over({}, {logical})`.
func (r Rule) String() string {
	switch {
	case r.Pattern == nil:
		return "a rule without a pattern"
	case len(r.Largest) > 0:
		return fmt.Sprintf("%q to largest(%s)", r.Pattern, join(r.Largest))
	}
	return fmt.Sprintf("%q to %s", r.Pattern, r.Split)
}

// names reports whether the rule's pattern matches a path, or that of the variable whose state the
// path is.
func (r Rule) names(path string) bool {
	if r.Pattern.MatchString(path) {
		return true
	}
	of, ok := StateOf(path)
	return ok && r.Pattern.MatchString(of)
}

// Reaches reports whether the rule says something of a variable of this path and shape.
func (r Rule) Reaches(path string, dims []int) bool {
	switch {
	case len(r.Largest) > 0:
		if product(dims) < max(r.Smallest, 1) || r.Smallest == 0 && product(dims) < smallest {
			return false
		}
	case r.Split.Rank() >= 0 && r.Split.Rank() != len(dims):
		return false
	}
	return r.names(path)
}

// Validate returns a [*RuleError] for the first rule that cannot be meant on a mesh: one that names
// an axis that the mesh lacks, or an axis twice.
func (rules Rules) Validate(mesh sharding.Mesh) error {
	for i, r := range rules {
		fail := func(err error, hint, format string, args ...any) error {
			return &RuleError{Rule: i, Text: r.String(), Reason: fmt.Sprintf(format, args...), Hint: hint, Err: err}
		}
		switch {
		case r.Pattern == nil:
			return fail(nil, "make it with gomlx.Match", "it has no pattern")
		case r.Split.Kind() != logical.None && len(r.Largest) > 0:
			return fail(nil, "make two rules of it", "it has a split and axes for the largest dimension")
		case r.Smallest < 0:
			return fail(nil, "give 0 or more", "it is for variables of %d elements or more", r.Smallest)
		case r.Smallest > 0 && len(r.Largest) == 0:
			return fail(nil, "leave the size out", "a size counts only for the largest dimension's axes")
		case r.Optional && r.Required:
			return fail(nil, "choose one", "it is optional and required")
		case r.Split.Kind() == logical.None && len(r.Largest) == 0:
			return fail(nil, `give the axes of each dimension, as logical.Over("", "logical")`, "it splits nothing")
		case r.Split.Kind() == logical.KindAssign, r.Split.Parts() != nil:
			return fail(nil, `name the axes, as logical.Over("", "logical")`, "a program over the whole batch has no logical device of its own")
		}
		split := r.Split
		if len(r.Largest) > 0 {
			split = logical.Over(join(r.Largest))
		}
		if err := checkAxes(mesh, split); err != nil {
			return fail(nil, err.hint, "%s", err.reason)
		}
	}
	return nil
}

// axisFault is what is wrong with the axes of a split.
type axisFault struct{ reason, hint string }

func checkAxes(mesh sharding.Mesh, split logical.Annotation) *axisFault {
	at := map[string]int{}
	for dim, names := range split.Axes() {
		for _, name := range names {
			_, known := mesh.AxisSize(name)
			first, twice := at[name]
			switch {
			case name == "":
				return &axisFault{fmt.Sprintf("dimension %d has an axis without a name", dim), `give names with one comma between two, or "" for a dimension that stays whole`}
			case !known:
				return &axisFault{fmt.Sprintf("the mesh has no axis %q", name), "name one of " + axesText(mesh) + "; the options logical and axes make axes"}
			case twice && first == dim:
				return &axisFault{fmt.Sprintf("axis %q splits dimension %d twice", name, dim), "name an axis once"}
			case twice:
				return &axisFault{fmt.Sprintf("axis %q splits dimension %d and dimension %d", name, first, dim), "name an axis once"}
			}
			at[name] = dim
		}
	}
	return nil
}

// Uses reports whether some rule splits over an axis.
func (rules Rules) Uses(axis string) bool {
	return slices.ContainsFunc(rules, func(r Rule) bool {
		return slices.Contains(r.Largest, axis) || slices.ContainsFunc(r.Split.Axes(), func(names []string) bool { return slices.Contains(names, axis) })
	})
}

func product(dims []int) int {
	n := 1
	for _, d := range dims {
		n *= d
	}
	return n
}
