package logical

import (
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/gomlx/compute/shapes"

	"github.com/tpustrategy/tpustrategy/internal/similar"
)

// RuleUsage records which rules match at least one variable. It is safe for concurrent use. The
// zero value has recorded no variables.
type RuleUsage struct {
	mu   sync.Mutex
	used []bool
}

// Record records the rules that apply to a variable. A rule with a State is also recorded if only
// its MinElements excludes the variable, because all variables of a model can be small.
func (u *RuleUsage) Record(rules Rules, path string, dims []int) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.used == nil {
		u.used = make([]bool, len(rules))
	}
	for i, r := range rules {
		u.used[i] = u.used[i] || r.AppliesTo(path, dims) || r.State != 0 && r.matches(path)
	}
}

// Unused returns the indices of the rules that match no recorded variable and are not Optional.
func (u *RuleUsage) Unused(rules Rules) (unused []int) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for i, r := range rules {
		if !r.Optional && (u.used == nil || !u.used[i]) {
			unused = append(unused, i)
		}
	}
	return unused
}

// NoneUsed reports whether no rule matches a recorded variable.
func (u *RuleUsage) NoneUsed() bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return !slices.Contains(u.used, true)
}

// Variable is the path and shape of a variable, for error messages about rules.
type Variable struct {
	Path  string
	Shape shapes.Shape
}

// String returns the variable's path, dtype and dimensions, such as "/w" (Float32[1 8]).
func (v Variable) String() string {
	dimensions := ""
	if len(v.Shape.Dimensions) > 0 {
		dimensions = fmt.Sprint(v.Shape.Dimensions)
	}
	return fmt.Sprintf("%q (%s%s)", v.Path, v.Shape.DType, dimensions)
}

// ExplainUnused explains why the rule applies to none of the known variables, and suggests a
// correction. The text continues a sentence about the rule: "matches no variable; the nearest names
// are ...".
func (r Rule) ExplainUnused(known []Variable) string {
	const limit = 3
	var sameName, paths, nearest []string
	for _, v := range known {
		if paths = append(paths, v.Path); r.matches(v.Path) {
			sameName = append(sameName, v.String())
		}
	}
	if len(sameName) > 0 {
		more := ""
		if len(sameName) > limit {
			more = fmt.Sprintf(" and %d more", len(sameName)-limit)
		}
		listed := strings.Join(sameName[:min(limit, len(sameName))], ", ") + more
		if len(r.Largest) > 0 {
			return fmt.Sprintf("matches only variables with fewer elements than MinElements: %s; reduce MinElements", listed)
		}
		return fmt.Sprintf(
			"splits variables of rank %d, but matches only variables of other ranks: %s; write one entry for each dimension",
			r.Annotation.Rank(), listed)
	}
	text := "matches no variable"
	for _, i := range similar.Nearest(similar.TrimOperators(r.Pattern.String()), paths, limit) {
		nearest = append(nearest, known[i].String())
	}
	if len(nearest) > 0 {
		text += "; the nearest names are " + strings.Join(nearest, ", ")
	}
	return text + "; set Optional if the rule may match nothing"
}
