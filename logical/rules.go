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

// Rule specifies the placement of the variables whose path matches a pattern. Only one of
// Annotation, Largest and State can be set.
type Rule struct {
	// Pattern matches any part of the variable's path, such as "/hidden/dense/weights". It also
	// matches the optimizer state and accumulated gradients of a variable if it matches the path of
	// the variable (see [OwnerOfState]).
	Pattern *regexp.Regexp
	// Annotation is the annotation of the matching variables. A split applies only to variables of
	// the split's rank. A [Replicated] annotation also replicates the optimizer state, and later
	// rules are ignored for the variable.
	Annotation Annotation
	// Largest are axes that split the largest dimension that is divisible by them and not split by
	// an Annotation. This split is added to the split of a rule with named axes, unless that rule
	// already uses the axes.
	Largest []string
	// State selects the training state of the matching variables that is sharded over the replicas
	// (see [MatchState]). It is applied in addition to the annotations of other rules.
	State StateSharding
	// MinElements is the minimum number of elements of a variable for Largest and State to apply. 0
	// means 1024. Sharding small variables is inefficient because each sharded variable needs its
	// own collectives.
	MinElements int
	// Optional allows a rule that matches no variable. Otherwise such a rule is an error, because
	// its split would be ignored silently.
	Optional bool
	// Required makes two problems errors that package gomlx otherwise only reports: the rule
	// matches a variable that it cannot split, and the rule matches no variable of the first
	// program with variables and data. In package strategy every rule is required, unless it is
	// Optional.
	Required bool
}

// Rules place variables by path. For each variable, the first matching rule with an Annotation
// applies, and the rules with Largest add further splits over axes that are still unused. The first
// matching rule with a State applies, too. Rules after a matching [Replicated] rule are ignored. A
// variable without a matching rule is replicated on every device.
type Rules []Rule

const defaultMinElements = 1024

// Match returns a rule that annotates the variables whose path matches the regular expression
// pattern. Like regexp.MustCompile, it panics if the pattern is invalid.
func Match(pattern string, annotation Annotation) Rule {
	return Rule{Pattern: regexp.MustCompile(pattern), Annotation: annotation}
}

// MatchState returns a rule that shards training state of the matching variables over the replicas:
// the optimizer state, gradients or parameters, as in ZeRO. The pattern "" matches all variables.
// Variables with fewer than 1024 elements are not sharded unless [Rule.MinElements] is set.
// MatchState panics if the pattern is invalid.
func MatchState(pattern string, state StateSharding) Rule {
	return Rule{Pattern: regexp.MustCompile(pattern), State: state}
}

// String returns the pattern and the placement of the rule, such as `"/dense/weights$" to
// -,logical`.
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

// matches reports whether the pattern matches path. If path belongs to optimizer state or an
// accumulated gradient, the pattern can match the path of its variable instead.
func (r Rule) matches(path string) bool {
	if r.Pattern.MatchString(path) {
		return true
	}
	owner := OwnerOfState(path, nil)
	return owner != "" && r.Pattern.MatchString(owner)
}

// AppliesTo reports whether the rule applies to a variable with the given path and dimensions.
func (r Rule) AppliesTo(path string, dims []int) bool {
	switch rank := r.Annotation.Rank(); {
	case (len(r.Largest) > 0 || r.State != 0) && product(dims) < cmp.Or(r.MinElements, defaultMinElements), rank >= 0 &&
		rank != len(dims):
		return false
	}
	return r.matches(path)
}

// StateFor returns which training state of a variable is sharded over the replicas, and the index
// of the rule that selects it. Without such a rule it returns ShardNothing and -1.
func (rules Rules) StateFor(path string, dims []int) (StateSharding, int) {
	for i, r := range rules {
		switch {
		case !r.AppliesTo(path, dims):
		case r.State != 0:
			return r.State, i
		case r.Annotation.Kind() == KindReplicate:
			return ShardNothing, i
		}
	}
	return ShardNothing, -1
}

// matchVariable returns the index of the first rule whose Annotation applies to the variable, or
// -1. more contains the indices of the rules that split the variable's largest dimension.
func (rules Rules) matchVariable(path string, dims []int) (first int, more []int) {
	first = -1
	for i, r := range rules {
		switch {
		case r.State != 0, len(r.Largest) == 0 && first >= 0, !r.AppliesTo(path, dims):
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

// AnnotationFor returns the annotation of the variable with this path and these dimensions, and the
// index of the rule that matched, or -1 if no rule matched. A rule matches only variables of the
// rank of its annotation. mesh must contain the replica axis and the logical axes.
func (rules Rules) AnnotationFor(mesh sharding.Mesh, path string, dims []int) (Annotation, int) {
	rule, largest := rules.matchVariable(path, dims)
	var a Annotation
	if rule >= 0 {
		a = rules[rule].Annotation
	}
	if len(largest) == 0 || rule >= 0 && a.axes == nil {
		return a, rule
	}
	axes := a.Axes()
	if axes == nil {
		axes = make([][]string, len(dims))
	}
	for _, i := range largest {
		if dim, _ := largestDim(mesh, rules[i].Largest, dims, axes); dim >= 0 {
			axes[dim], _ = region.NontrivialAxes(mesh, rules[i].Largest)
			a = Annotation{kind: KindSplit, axes: axes}
			if rule < 0 {
				rule = i
			}
		}
	}
	return a, rule
}

// Validate returns a [*RuleError] for the first rule that is invalid on the mesh: a rule without a
// pattern, a rule with contradictory fields, or a rule that uses an unknown or repeated axis. mesh
// must contain the replica axis and the logical axes.
func (rules Rules) Validate(mesh sharding.Mesh) error {
	for i, r := range rules {
		fail := func(err error, hint, format string, args ...any) error {
			return &RuleError{Rule: i, Text: r.String(), Reason: fmt.Sprintf(format, args...), Hint: hint, Err: err}
		}
		usesNumbers := func(r Rule) bool { return r.Annotation.Kind() == KindAssign || r.Annotation.Parts() != nil }
		split := r.Annotation
		if len(r.Largest) > 0 {
			split = SplitOverAxes(strings.Join(r.Largest, "+"))
		}
		switch {
		case r.Pattern == nil:
			return fail(nil, "create it with logical.Match", "it has no pattern")
		case r.Annotation.Kind() != KindNone && len(r.Largest) > 0:
			return fail(nil, "use two rules", "it has an annotation and axes for the largest dimension")
		case r.State != 0 && (r.Annotation.Kind() != KindNone || len(r.Largest) > 0):
			return fail(nil, "use two rules", "it splits a variable and shards its state")
		case r.State != 0 && !r.State.isDefined():
			return fail(nil, "use ShardNothing, ShardOptimizer, ShardGradients or ShardParameters", "%s is undefined", r.State)
		case r.MinElements < 0:
			return fail(nil, "use 0 or more", "MinElements is %d", r.MinElements)
		case r.MinElements > 0 && len(r.Largest) == 0 && r.State == 0:
			return fail(nil, "remove MinElements", "MinElements is used only with Largest and State")
		case r.Optional && r.Required:
			return fail(nil, "set only one of them", "it is optional and required")
		case len(r.Largest) > 0 && slices.ContainsFunc(rules, usesNumbers):
			return fail(nil, "use axis names in the other rules, as in -,logical",
				"Largest cannot be combined with rules that split by number or assign a device")
		}
		if _, reason, hint := split.checkAxisNames(mesh); reason != "" {
			return fail(nil, hint, "%s", reason)
		}
	}
	return nil
}

// UsesAxis reports whether a rule splits over the named axis.
func (rules Rules) UsesAxis(axis string) bool {
	return slices.ContainsFunc(rules, func(r Rule) bool {
		return axis == ReplicaAxis && r.State.Parts() != 0 || slices.Contains(r.Largest, axis) ||
			slices.ContainsFunc(r.Annotation.axes, func(names []string) bool { return slices.Contains(names, axis) })
	})
}

func product(dims []int) int {
	n := 1
	for _, d := range dims {
		n *= d
	}
	return n
}
