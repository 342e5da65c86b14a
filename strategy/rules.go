package strategy

import (
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/gomlx/gomlx/ml/model"

	"github.com/tpustrategy/tpustrategy/logical"
)

// A variable rule that matches no variable is a split that the user requested and that would be
// dropped. The error is returned by the trace of a step as soon as it is certain: no known variable
// has the rule's name and rank, and no untraced function is left that could create one. See
// [Options.Variables].

// ruleTracker records which of the strategy's rules have matched a variable. It is safe for
// concurrent use.
type ruleTracker struct {
	logical.RuleUsage
	mu sync.Mutex
	// untraced counts the functions of each store that are not traced yet. They may create
	// variables.
	untraced map[*model.Store]int
}

func (u *ruleTracker) addUntraced(rules logical.Rules, store *model.Store) {
	if len(rules) == 0 || store == nil {
		return
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.untraced == nil {
		u.untraced = map[*model.Store]int{}
	}
	u.untraced[store]++
}

// removeUntraced records that a function no longer counts as untraced, because it was traced or
// closed.
func (u *ruleTracker) removeUntraced(f *Function) {
	store := f.opts.Store
	if len(f.strategy.opts.Variables) == 0 || store == nil || f.traced.Swap(true) {
		return
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.untraced[store]--; u.untraced[store] <= 0 {
		delete(u.untraced, store)
	}
}

// knownVariables returns the variables that rules may match: all variables of the function's store,
// and the strategy's variables.
func (f *Function) knownVariables() (known []logical.Variable) {
	s := f.strategy
	var own *Variables
	if store := f.opts.Store; store != nil {
		own = s.Variables(store)
		for v := range store.IterVariables() {
			known = append(known, logical.Variable{Path: v.Path(), Shape: v.Shape()})
		}
	}
	elsewhere := s.DistributedVariables()
	s.mu.Lock()
	for _, vs := range s.variables {
		if vs != own {
			elsewhere = append(elsewhere, vs.All()...)
		}
	}
	s.mu.Unlock()
	for _, v := range elsewhere {
		known = append(known, logical.Variable{Path: v.path, Shape: v.Shape()})
	}
	return known
}

// checkRules returns an error for each rule that matches no variable. It is called after a step
// with variables was traced or loaded.
func (f *Function) checkRules(variables []*Variable) error {
	s := f.strategy
	rules := s.opts.Variables
	if len(rules) == 0 || !slices.ContainsFunc(variables, func(v *Variable) bool { return v != nil }) {
		return nil
	}
	s.rules.removeUntraced(f)
	// Stores can have many variables. They are only visited if a rule is unmatched.
	if len(s.rules.Unused(rules)) == 0 {
		return nil
	}
	known := f.knownVariables()
	for _, v := range known {
		s.rules.Record(rules, v.Path, v.Shape.Dimensions)
	}
	if f.hasUntraced() {
		return nil
	}
	var errs []error
	for _, i := range s.rules.Unused(rules) {
		errs = append(errs, &OptionError{Option: "Variables", Reason: fmt.Sprintf("rule %d (%s) %s", i, rules[i],
			rules[i].ExplainUnused(known))})
	}
	return errors.Join(errs...)
}

// hasUntraced reports whether a function that was not traced yet may still create variables. If
// this function is a training step, it uses all variables of its store, so other functions cannot
// add variables to this store.
func (f *Function) hasUntraced() bool {
	f.strategy.rules.mu.Lock()
	defer f.strategy.rules.mu.Unlock()
	for store := range f.strategy.rules.untraced {
		if store != f.opts.Store || !f.usesAllVariables {
			return true
		}
	}
	return false
}
