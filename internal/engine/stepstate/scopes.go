package stepstate

import (
	"maps"
	"strings"

	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/ml/model"

	"github.com/tpustrategy/tpustrategy/internal/modelfields"
)

// NewScopes marks all variable scopes of the step as unused until leave is called. Code that runs
// in between may use scopes that other layers have used in the same graph.
func (s *State) NewScopes() (leave func()) {
	root, scopes := s.Scope, s.scopes
	if root != nil {
		s.Scope, s.scopes = root.Store().RootScope(), nil
	}
	return func() { s.Scope, s.scopes = root, scopes }
}

// SaveScopes records which variable scopes the layers have used so far. The function rewind marks
// all later used scopes as unused. If a caller discards a trace, it must call rewind before it
// traces the same layers again.
func (s *State) SaveScopes() (rewind func()) {
	if s.Scope == nil {
		return func() {}
	}
	scopes := maps.Clone(s.scopes)
	used := map[*model.Scope]map[string]struct{}{s.Scope: maps.Clone(modelfields.UsedNames(s.Scope))}
	for _, scope := range s.scopes {
		used[scope] = maps.Clone(modelfields.UsedNames(scope))
	}
	return func() {
		s.scopes = scopes
		for scope, names := range used {
			now := modelfields.UsedNames(scope)
			clear(now)
			maps.Copy(now, names)
		}
	}
}

// ScopeAt returns the variable scope at a path below the step's root scope. Calls with the same
// path return the same scope, so that GoMLX rejects a second layer in this scope.
func (s *State) ScopeAt(g *graph.Graph, path ...string) *model.Scope {
	scope := s.Scope
	for _, name := range path {
		next := scope.At("%s", name) // panics for an invalid name
		known := s.scopes[next.Scope()]
		if known == nil {
			if known = next; !useName(scope, name) {
				// A layer created the scope with GoMLX: its variables show which names the layer
				// used.
				for v := range next.IterVariables() {
					rest := strings.TrimPrefix(v.Path(), next.Scope()+model.ScopeSeparator)
					if inner, _, nested := strings.Cut(rest, model.ScopeSeparator); nested && v.InUseByGraph(g) {
						useName(next, inner)
					}
				}
			}
			if s.scopes == nil {
				s.scopes = map[string]*model.Scope{}
			}
			s.scopes[next.Scope()] = known
		}
		scope = known
	}
	return scope
}

// useName marks a name within the scope as used by a layer. It returns false if the name was used
// before.
func useName(scope *model.Scope, name string) (first bool) {
	defer func() {
		if recover() != nil {
			first = false
		}
	}()
	scope.In("%s", name)
	return true
}
