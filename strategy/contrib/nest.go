package contrib

import (
	"reflect"

	"tpustrategy/strategy"
)

const maxDepth = 100

// isNest reports whether values of the type have members: as in package strategy,
// slices and maps of interfaces or of nests, and structs of exported such fields.
func isNest(t reflect.Type, depth int) bool {
	if depth > maxDepth {
		return false
	}
	switch t.Kind() {
	case reflect.Slice, reflect.Map:
		return t.Elem().Kind() == reflect.Interface || isNest(t.Elem(), depth+1)
	case reflect.Struct:
		for i := range t.NumField() {
			f := t.Field(i)
			if !f.IsExported() || f.Type.Kind() != reflect.Interface && !isNest(f.Type, depth+1) {
				return false
			}
		}
		return t.NumField() > 0
	}
	return false
}

// mapNest replaces the leaves of a nest.
func mapNest(op string, nest any, leaf func(any) (any, error)) (any, error) {
	out, err := mapValue(op, reflect.ValueOf(nest), leaf, 0)
	if err != nil || !out.IsValid() {
		return nil, err
	}
	return out.Interface(), nil
}

func mapValue(op string, v reflect.Value, leaf func(any) (any, error), depth int) (reflect.Value, error) {
	if depth > maxDepth {
		return v, fault(strategy.ValueError, op, "give a tree", "a nest of more than %d levels, or one that holds itself", maxDepth)
	}
	if !v.IsValid() || !isNest(v.Type(), 0) {
		var x any
		if v.IsValid() {
			x = v.Interface()
		}
		x, err := leaf(x)
		return reflect.ValueOf(x), err
	}
	member := func(to reflect.Type, m reflect.Value) (reflect.Value, error) {
		if m.Kind() == reflect.Interface {
			m = m.Elem()
		}
		out, err := mapValue(op, m, leaf, depth+1)
		switch {
		case err != nil:
			return out, err
		case !out.IsValid():
			return reflect.Zero(to), nil
		case !out.Type().AssignableTo(to):
			return out, fault(strategy.TypeError, op, "use a member of type any", "a member of type %s cannot hold a %s", to, out.Type())
		}
		return out, nil
	}
	t := v.Type()
	switch t.Kind() {
	case reflect.Slice:
		out := reflect.MakeSlice(t, v.Len(), v.Len())
		for i := range v.Len() {
			x, err := member(t.Elem(), v.Index(i))
			if err != nil {
				return out, err
			}
			out.Index(i).Set(x)
		}
		return out, nil
	case reflect.Map:
		out := reflect.MakeMapWithSize(t, v.Len())
		// The order does not matter: a leaf's replacement depends on the leaf alone.
		for keys := v.MapRange(); keys.Next(); {
			x, err := member(t.Elem(), keys.Value())
			if err != nil {
				return out, err
			}
			out.SetMapIndex(keys.Key(), x)
		}
		return out, nil
	}
	out := reflect.New(t).Elem()
	for i := range t.NumField() {
		x, err := member(t.Field(i).Type, v.Field(i))
		if err != nil {
			return out, err
		}
		out.Field(i).Set(x)
	}
	return out, nil
}
