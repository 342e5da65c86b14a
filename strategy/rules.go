package strategy

import (
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/gomlx/gomlx/ml/model"

	"github.com/tpustrategy/tpustrategy/logical"
)

// A variable rule that reaches no variable is a split that was asked for and would be dropped. It
// is an error of the step that is traced when it can be told: when no variable that the strategy
// knows has the rule's name and rank, and no function is left that could still make one. See
// [Options.Variables].

// ruleUse records which rules have reached a variable. It is safe for concurrent use.
type ruleUse struct {
	logical.Reach
	mu sync.Mutex
	// untraced counts, by store, the functions that were made and never traced: they may make the
	// variables that a rule is for.
	untraced map[*model.Store]int
}

// awaits counts a new function over a store.
func (u *ruleUse) awaits(rules logical.Rules, store *model.Store) {
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

// came says that a function was traced for the first time.
func (u *ruleUse) came(f *Function) {
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

// knownVariables are the variables that the rules are held against: all of the traced function's
// store, used by the step or not, and those that the strategy has elsewhere.
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
	if len(s.rules.Missing(rules)) == 0 {
		return nil
	}
	known := f.knownVariables()
	for _, v := range known {
		s.rules.Mark(rules, v.Path, v.Shape.Dimensions)
	}
	if f.mayStillCome() {
		return nil
	}
	var errs []error
	for _, i := range s.rules.Missing(rules) {
		errs = append(errs, &OptionError{Option: "Variables", Reason: fmt.Sprintf("rule %d (%s) %s", i, rules[i], rules[i].Unreached(known))})
	}
	return errors.Join(errs...)
}

// mayStillCome reports whether a function that was never traced may make the variables that a rule
// is for. A training step has all variables of its store.
func (f *Function) mayStillCome() bool {
	f.strategy.rules.mu.Lock()
	defer f.strategy.rules.mu.Unlock()
	for store := range f.strategy.rules.untraced {
		if store != f.opts.Store || !f.wholeModel {
			return true
		}
	}
	return false
}
