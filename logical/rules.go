package logical

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/tpustrategy/tpustrategy/internal/region"
	"github.com/tpustrategy/tpustrategy/sharding"
)

// Rule says how the variables whose path matches a pattern are laid out. It has an Annotation, axes in
// Largest, or a State. A Rule is a value.
type Rule struct {
	// Pattern is searched for in the variable's path, such as "/hidden/dense/weights". For the state
	// that optimizers and an accumulation of gradients keep of a variable (see [StateOf]), it is
	// searched for in the path of that variable, too.
	Pattern *regexp.Regexp
	// Annotation is the annotation of the variables that match. A split reaches only variables of as
	// many dimensions as it has numbers or entries. [Replicated] keeps the variable and its state
	// whole, whatever later rules say.
	Annotation Annotation
	// Largest are axes that split the largest dimension that they divide, and that no Annotation
	// splits. They come on top of what a rule with a split by names says, unless that uses the axes.
	Largest []string
	// State says what of the training of the variables that match the replicas share out. It comes on
	// top of what other rules say; see [Share].
	State StateSharding
	// Smallest is the number of elements from which on Largest splits a variable, and State shares it
	// out; 0 stands for 1024. Each variable in parts has collectives of its own.
	Smallest int
	// Optional allows that the rule reaches no variable. Without it, a rule that reaches none is an
	// error, because its split would be dropped silently.
	Optional bool
	// Required makes an error of what package gomlx only reports otherwise: a variable that the rule
	// matches and cannot split as it says, and that no variable is reached by the first program that
	// takes variables and data. Package strategy holds every rule to that that is not Optional.
	Required bool
}

// Rules lay out variables by path. Of the rules with an Annotation that reach a variable the first
// counts, and those with Largest come on top, each over axes that nothing before it has used. Of those
// with a State the first counts, too. A rule that replicates ends the search. A variable that no rule
// reaches is whole on every device.
type Rules []Rule

// smallest is the Smallest of the zero value.
const smallest = 1024

// Match returns a rule for the paths that match a regular expression. It panics if the expression
// does not compile, as regexp.MustCompile does.
func Match(pattern string, annotation Annotation) Rule {
	return Rule{Pattern: regexp.MustCompile(pattern), Annotation: annotation}
}

// Share returns a rule by which the replicas share out what belongs to the variables whose paths match
// a regular expression, "" for all: the optimizer's state, gradients, or the variables too. Those of
// fewer than 1024 elements stay whole; [Rule].Smallest says another number. It panics as Match does.
func Share(pattern string, state StateSharding) Rule {
	return Rule{Pattern: regexp.MustCompile(pattern), State: state}
}

// String returns the rule as in `"/dense/weights$" to -,logical`.
func (r Rule) String() string {
	switch {
	case r.Pattern == nil:
		return "a rule without a pattern"
	case len(r.Largest) > 0:
		return fmt.Sprintf("%q to largest(%s)", r.Pattern, strings.Join(r.Largest, "+"))
	case r.State != 0:
		return fmt.Sprintf("%q to state(%s)", r.Pattern, r.State)
	}
	return fmt.Sprintf("%q to %s", r.Pattern, r.Annotation)
}

// matches reports whether the rule's pattern matches a path, or that of the variable whose state the
// path is.
func (r Rule) matches(path string) bool {
	if r.Pattern.MatchString(path) {
		return true
	}
	of := StateOf(path, nil)
	return of != "" && r.Pattern.MatchString(of)
}

// Reaches reports whether the rule says something of a variable of this path and shape.
func (r Rule) Reaches(path string, dims []int) bool {
	switch rank := r.Annotation.Rank(); {
	case (len(r.Largest) > 0 || r.State != 0) && product(dims) < cmp.Or(r.Smallest, smallest), rank >= 0 && rank != len(dims):
		return false
	}
	return r.matches(path)
}

// State returns what the replicas share out of the training of a variable of this path and shape, and
// the index of the rule that says it, or ShardNothing and -1.
func (rules Rules) State(path string, dims []int) (StateSharding, int) {
	for i, r := range rules {
		switch {
		case !r.Reaches(path, dims):
		case r.State != 0:
			return r.State, i
		case r.Annotation.Kind() == KindReplicate:
			return ShardNothing, i
		}
	}
	return ShardNothing, -1
}

// reaching returns the rule whose Annotation a variable has, or -1, and those whose Largest comes on
// top of it.
func (rules Rules) reaching(path string, dims []int) (first int, more []int) {
	first = -1
	for i, r := range rules {
		switch {
		case r.State != 0, len(r.Largest) == 0 && first >= 0, !r.Reaches(path, dims):
		case len(r.Largest) > 0:
			more = append(more, i)
		default:
			if first = i; r.Annotation.Kind() == KindReplicate {
				return first, nil
			}
		}
	}
	return first, more
}

// For returns the annotation of the variable at path, and the index of the rule that gave it, or -1
// if no rule did. It passes over a rule that splits another number of dimensions, so a rule for a
// matrix leaves scalars with a similar path alone. The mesh is that of the replicas and of the logical
// axes, over which Largest splits.
func (rules Rules) For(mesh sharding.Mesh, path string, dims []int) (Annotation, int) {
	rule, more := rules.reaching(path, dims)
	var a Annotation
	if rule >= 0 {
		a = rules[rule].Annotation
	}
	if len(more) == 0 || rule >= 0 && a.axes == nil {
		return a, rule
	}
	axes := a.Axes()
	if axes == nil {
		axes = make([][]string, len(dims))
	}
	for _, i := range more {
		if dim, _ := largest(mesh, rules[i].Largest, dims, axes); dim >= 0 {
			axes[dim], _ = region.Divided(mesh, rules[i].Largest)
			a = Annotation{kind: KindSplit, axes: axes}
			if rule < 0 {
				rule = i
			}
		}
	}
	return a, rule
}

// Validate returns a [*RuleError] for the first rule that cannot be meant on a mesh, that of the
// replicas and of the logical axes: one that says nothing, or contradicts itself, or names an axis that
// the mesh lacks, or an axis twice.
func (rules Rules) Validate(mesh sharding.Mesh) error {
	for i, r := range rules {
		fail := func(err error, hint, format string, args ...any) error {
			return &RuleError{Rule: i, Text: r.String(), Reason: fmt.Sprintf(format, args...), Hint: hint, Err: err}
		}
		named := func(r Rule) bool { return r.Annotation.Kind() == KindAssign || r.Annotation.Parts() != nil }
		split := r.Annotation
		if len(r.Largest) > 0 {
			split = Over(strings.Join(r.Largest, "+"))
		}
		switch {
		case r.Pattern == nil:
			return fail(nil, "make it with logical.Match", "it has no pattern")
		case r.Annotation.Kind() != None && len(r.Largest) > 0:
			return fail(nil, "make two rules of it", "it has an annotation and axes for the largest dimension")
		case r.State != 0 && (r.Annotation.Kind() != None || len(r.Largest) > 0):
			return fail(nil, "make two rules of it", "it places a variable and shares its state out")
		case r.State != 0 && (r.State < ShardNothing || r.State > ShardParameters):
			return fail(nil, "use ShardNothing, ShardOptimizer, ShardGradients or ShardParameters", "%s is none", r.State)
		case r.Smallest < 0:
			return fail(nil, "give 0 or more", "it is for variables of %d elements or more", r.Smallest)
		case r.Smallest > 0 && len(r.Largest) == 0 && r.State == 0:
			return fail(nil, "leave the size out", "a size counts only for the largest dimension's axes and for state")
		case r.Optional && r.Required:
			return fail(nil, "choose one", "it is optional and required")
		case len(r.Largest) > 0 && slices.ContainsFunc(rules, named):
			return fail(nil, "name the axes of the others, as in -,logical", "axes for the largest dimension come on top of splits by names, and another rule has numbers or a device")
		}
		if _, reason, hint := split.misnamed(mesh); reason != "" {
			return fail(nil, hint, "%s", reason)
		}
	}
	return nil
}

// Uses reports whether some rule splits over an axis.
func (rules Rules) Uses(axis string) bool {
	return slices.ContainsFunc(rules, func(r Rule) bool {
		return axis == ReplicaName && r.State > ShardNothing || slices.Contains(r.Largest, axis) || slices.ContainsFunc(r.Annotation.axes, func(names []string) bool { return slices.Contains(names, axis) })
	})
}

func product(dims []int) int {
	n := 1
	for _, d := range dims {
		n *= d
	}
	return n
}
