package strategy

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/ml/model"

	"github.com/tpustrategy/tpustrategy/internal/misspelt"
	"github.com/tpustrategy/tpustrategy/logical"
)

// A variable rule that reaches no variable is a split that was asked for and would be dropped. It
// is an error of the step that is traced when it can be told: when no variable that the strategy
// knows has the rule's name and rank, and no function is left that could still make one. See
// [Options.Variables].

// ruleUse records which rules have reached a variable. It is safe for concurrent use.
type ruleUse struct {
	mu sync.Mutex
	// reached says of each rule whether a variable was found for it.
	reached []bool
	// untraced counts, by store, the functions that were made and never traced: they may make the
	// variables that a rule is for.
	untraced map[*model.Store]int
}

// reaches marks the rules that a variable is found for.
func (u *ruleUse) reaches(rules logical.Rules, path string, rank int) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for i, rule := range rules {
		u.reached[i] = u.reached[i] || rule.Reaches(path, rank)
	}
}

// open reports whether a rule that must reach a variable has reached none yet.
func (u *ruleUse) open(rules logical.Rules) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	for i, rule := range rules {
		if !u.reached[i] && !rule.Optional {
			return true
		}
	}
	return false
}

// named is a variable as the rules see it.
type named struct {
	path  string
	shape shapes.Shape
}

// awaits counts a new function over a store.
func (u *ruleUse) awaits(store *model.Store) {
	if len(u.reached) == 0 || store == nil {
		return
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.untraced == nil {
		u.untraced = map[*model.Store]int{}
	}
	u.untraced[store]++
}

// came says that a function was traced for the first time.
func (u *ruleUse) came(f *Function) {
	store := f.opts.Store
	if len(u.reached) == 0 || store == nil || f.traced.Swap(true) {
		return
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.untraced[store]--; u.untraced[store] <= 0 {
		delete(u.untraced, store)
	}
}

// knownVariables are the variables that the rules are held against: all of the traced function's
// store, used by the step or not, and those that the strategy has elsewhere.
func (f *Function) knownVariables() (known []named) {
	s := f.strategy
	var own *Variables
	if store := f.opts.Store; store != nil {
		own = s.Variables(store)
		for v := range store.IterVariables() {
			known = append(known, named{v.Path(), v.Shape()})
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, v := range s.own {
		if v.unlisted {
			continue
		}
		known = append(known, named{v.path, v.Shape()})
	}
	for _, vs := range s.variables {
		if vs == own {
			continue
		}
		for _, v := range vs.All() {
			known = append(known, named{v.path, v.Shape()})
		}
	}
	return known
}

// checkRules reports the rules that reach no variable, once a step that has variables was traced or
// loaded.
func (f *Function) checkRules(variables []*Variable) error {
	s := f.strategy
	rules := s.opts.Variables
	if len(rules) == 0 || !slices.ContainsFunc(variables, func(v *Variable) bool { return v != nil }) {
		return nil
	}
	s.rules.came(f)
	// The variables of all stores are many; a strategy whose rules are met never walks them.
	if !s.rules.open(rules) {
		return nil
	}
	known := f.knownVariables()
	s.rules.mu.Lock()
	defer s.rules.mu.Unlock()
	var errs []error
	for i, rule := range rules {
		if s.rules.reached[i] || rule.Optional {
			continue
		}
		if s.rules.reached[i] = slices.ContainsFunc(known, func(v named) bool {
			return rule.Reaches(v.path, v.shape.Rank())
		}); s.rules.reached[i] {
			continue
		}
		errs = append(errs, &OptionError{Option: "Variables", Reason: unreached(i, rule, known)})
	}
	if f.mayStillCome() {
		return nil
	}
	return errors.Join(errs...)
}

// mayStillCome reports whether a function that was never traced may make the variables that a rule
// is for. A training step has all variables of its store.
func (f *Function) mayStillCome() bool {
	for store := range f.strategy.rules.untraced {
		if store != f.opts.Store || !f.wholeModel {
			return true
		}
	}
	return false
}

// unreached says why a rule reaches no variable.
func unreached(i int, rule logical.Rule, known []named) string {
	text := fmt.Sprintf("rule %d (%q to %s)", i, rule.Pattern, rule.Annotation)
	var others []string
	for _, v := range known {
		if rule.Pattern.MatchString(v.path) {
			others = append(others, describeNamed(v))
		}
	}
	if len(others) > 0 {
		const most = 3
		more := ""
		if len(others) > most {
			more = fmt.Sprintf(" and %d more", len(others)-most)
		}
		return fmt.Sprintf("%s splits a variable of %d dimensions, and those of its name have others: %s%s; give as many parts as the variable has dimensions",
			text, rule.Annotation.Rank(), strings.Join(others[:min(most, len(others))], ", "), more)
	}
	text += " matches no variable"
	if near := nearestTo(rule.Pattern, known); len(near) > 0 {
		text += "; the nearest names are " + strings.Join(near, ", ")
	}
	return text + "; set Optional in a rule that may match nothing"
}

// describeNamed is a variable's name, dtype and dimensions, such as "/w" (Float32[1 8]).
func describeNamed(v named) string {
	dimensions := ""
	if len(v.shape.Dimensions) > 0 {
		dimensions = fmt.Sprint(v.shape.Dimensions)
	}
	return fmt.Sprintf("%q (%s%s)", v.path, v.shape.DType, dimensions)
}

// nearestTo returns the variables whose names come nearest to a pattern's text.
func nearestTo(pattern *regexp.Regexp, known []named) (names []string) {
	paths := make([]string, len(known))
	for i, v := range known {
		paths[i] = v.path
	}
	for _, i := range misspelt.Nearest(misspelt.Plain(pattern.String()), paths, 3) {
		names = append(names, describeNamed(known[i]))
	}
	return names
}
