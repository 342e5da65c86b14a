package logical

import "regexp"

// Rule annotates the variables whose path matches a pattern.
type Rule struct {
	// Pattern is searched for in the variable's path, such as "/hidden/dense/weights". The path of
	// an optimizer's slot contains the path of its variable, so one rule reaches both.
	Pattern *regexp.Regexp
	// Annotation is the annotation of the variables that match.
	Annotation Annotation
	// Optional allows that no variable matches. Without it, a rule that reaches no variable is an
	// error, because its split would be dropped silently.
	Optional bool
}

// Reaches reports whether the rule annotates a variable of this path and rank. A split reaches only
// variables of as many dimensions as it has numbers or entries.
func (r Rule) Reaches(path string, rank int) bool {
	if n := r.Annotation.Rank(); n >= 0 && n != rank {
		return false
	}
	return r.Pattern.MatchString(path)
}

// Rules annotates variables by path. The first rule that reaches a variable annotates it; a
// variable that no rule reaches is replicated.
type Rules []Rule

// Match returns a rule for the paths that match a regular expression. It panics if the expression
// does not compile, as regexp.MustCompile does.
func Match(pattern string, annotation Annotation) Rule {
	return Rule{Pattern: regexp.MustCompile(pattern), Annotation: annotation}
}

// For returns the annotation of the variable at path, and the index of the rule that gave it, or -1
// if no rule did. It passes over a rule that splits another number of dimensions than rank, so a
// rule for a matrix leaves scalars with a similar path alone.
func (rules Rules) For(path string, rank int) (Annotation, int) {
	for i, rule := range rules {
		if rule.Reaches(path, rank) {
			return rule.Annotation, i
		}
	}
	return Annotation{}, -1
}
