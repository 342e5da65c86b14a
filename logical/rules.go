package logical

import "regexp"

// Rule annotates the variables whose path matches.
type Rule struct {
	// Pattern is searched for in the variable's path, as in
	// "/hidden/dense/weights". Optimizer slots carry the path of the variable
	// that they belong to, so one rule reaches both.
	Pattern *regexp.Regexp
	// Annotation is what a matching variable gets.
	Annotation Annotation
	// Optional says that there need be no variable for the rule. Without it a rule
	// that reaches none is an error: a split that was asked for and would be dropped.
	Optional bool
}

// Reaches reports whether the rule is for variables of this path and rank. A split
// into another number of dimensions than rank is not.
func (r Rule) Reaches(path string, rank int) bool {
	if r.Annotation.kind == KindSplit && len(r.Annotation.parts) != rank {
		return false
	}
	return r.Pattern.MatchString(path)
}

// Rules annotate variables by path: the first match wins, and a variable that
// nothing matches is replicated.
type Rules []Rule

// Match returns a rule for the paths that match a regular expression. It panics
// if the expression does not compile, as regexp.MustCompile does: patterns are
// part of the program text.
func Match(pattern string, annotation Annotation) Rule {
	return Rule{Pattern: regexp.MustCompile(pattern), Annotation: annotation}
}

// For returns the annotation of the variable at path, and which rule gave it (-1
// for none). A rule that splits into another number of dimensions than rank is
// passed over, so that a rule for a matrix leaves the scalars beside it alone.
func (rules Rules) For(path string, rank int) (Annotation, int) {
	for i, rule := range rules {
		if rule.Reaches(path, rank) {
			return rule.Annotation, i
		}
	}
	return Annotation{}, -1
}
