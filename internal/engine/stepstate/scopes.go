package stepstate

import (
	"maps"
	"reflect"
	"strings"
	"unsafe"

	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/ml/model"
)

// NewScopes forgets which scopes layers have used, for code that may be traced several times in a
// graph. leave restores them.
func (s *State) NewScopes() (leave func()) {
	root, scopes := s.Scope, s.scopes
	if root != nil {
		s.Scope, s.scopes = root.Store().RootScope(), nil
	}
	return func() { s.Scope, s.scopes = root, scopes }
}

// MarkScopes returns a function that restores which scopes layers have used, for code that discards
// the trace of a part of a step and traces the part again.
func (s *State) MarkScopes() (rewind func()) {
	if s.Scope == nil {
		return func() {}
	}
	scopes, used := maps.Clone(s.scopes), map[*model.Scope]map[string]struct{}{s.Scope: maps.Clone(usedNames(s.Scope))}
	for _, scope := range s.scopes {
		used[scope] = maps.Clone(usedNames(scope))
	}
	return func() {
		s.scopes = scopes
		for scope, names := range used {
			now := usedNames(scope)
			clear(now)
			maps.Copy(now, names)
		}
	}
}

// usedNames returns the names for which GoMLX refuses another call of In.
func usedNames(scope *model.Scope) map[string]struct{} {
	field := reflect.ValueOf(scope).Elem().FieldByName("visitedPaths")
	if !field.IsValid() || !field.CanConvert(reflect.TypeFor[map[string]struct{}]()) {
		return nil // a test fails if the field has another name in this build of GoMLX
	}
	return *(*map[string]struct{})(unsafe.Pointer(field.UnsafeAddr()))
}

// ScopeAt returns the scope at a path. All calls with one path return one scope, so that GoMLX
// refuses a second layer there, as it refuses a second [model.Scope.In] with one name.
func (s *State) ScopeAt(g *graph.Graph, path ...string) *model.Scope {
	scope := s.Scope
	for _, name := range path {
		next := scope.At("%s", name) // panics for a name that is no name
		known := s.scopes[next.Scope()]
		if known == nil {
			if known = next; !visit(scope, name) {
				// A layer got the scope from GoMLX: its variables show which names it has used there.
				for v := range next.IterVariables() {
					rest := strings.TrimPrefix(v.Path(), next.Scope()+model.ScopeSeparator)
					if inner, _, nested := strings.Cut(rest, model.ScopeSeparator); nested && v.InUseByGraph(g) {
						visit(next, inner)
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

// visit marks a name within a scope as used. It returns false if it was used before.
func visit(scope *model.Scope, name string) (first bool) {
	defer func() {
		if recover() != nil {
			first = false
		}
	}()
	scope.In("%s", name)
	return true
}
