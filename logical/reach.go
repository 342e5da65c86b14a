package logical

import (
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/gomlx/compute/shapes"

	"github.com/tpustrategy/tpustrategy/internal/similar"
)

// Reach records which of some rules have reached a variable. It is safe for concurrent use. Its zero
// value has none.
type Reach struct {
	mu      sync.Mutex
	reached []bool
}

// Mark marks the rules that reach a variable. For one with a State the variable's path is enough: a
// model of small variables only has nothing to share out.
func (u *Reach) Mark(rules Rules, path string, dims []int) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.reached == nil {
		u.reached = make([]bool, len(rules))
	}
	for i, r := range rules {
		u.reached[i] = u.reached[i] || r.Reaches(path, dims) || r.State != 0 && r.matches(path)
	}
}

// Missing returns the indexes of the rules that have reached no variable and that are not Optional.
func (u *Reach) Missing(rules Rules) (missing []int) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for i, r := range rules {
		if !r.Optional && (u.reached == nil || !u.reached[i]) {
			missing = append(missing, i)
		}
	}
	return missing
}

// None reports whether no rule has reached a variable.
func (u *Reach) None() bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return !slices.Contains(u.reached, true)
}

// Variable is a variable that rules are held against.
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

// Unreached says why a rule reaches none of the known variables, and what to do, after the words that
// name the rule: "matches no variable; the nearest names are ...".
func (r Rule) Unreached(known []Variable) string {
	const most = 3
	var others, paths, near []string
	for _, v := range known {
		if paths = append(paths, v.Path); r.matches(v.Path) {
			others = append(others, v.String())
		}
	}
	if len(others) > 0 {
		more := ""
		if len(others) > most {
			more = fmt.Sprintf(" and %d more", len(others)-most)
		}
		listed := strings.Join(others[:min(most, len(others))], ", ") + more
		if len(r.Largest) > 0 {
			return fmt.Sprintf("is for larger variables than those of its name: %s; give a Smallest that they have", listed)
		}
		return fmt.Sprintf("splits a variable of %d dimensions, and those of its name have others: %s; give as many parts as the variable has dimensions",
			r.Annotation.Rank(), listed)
	}
	text := "matches no variable"
	for _, i := range similar.Nearest(similar.TrimOperators(r.Pattern.String()), paths, most) {
		near = append(near, known[i].String())
	}
	if len(near) > 0 {
		text += "; the nearest names are " + strings.Join(near, ", ")
	}
	return text + "; set Optional in a rule that may match nothing"
}
