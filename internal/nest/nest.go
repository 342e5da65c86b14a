package nest

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/tpustrategy/tpustrategy/errkind"
)

const (
	// MaxDepth is the maximum number of levels of a tree.
	MaxDepth = 100
	// MaxSize is the maximum number of leaves, slices, maps and structs in a tree. Values that are
	// referenced several times count once for each reference.
	MaxSize = 1 << 20
)

// ErrorKind classifies an [Error].
type ErrorKind uint8

const (
	// DifferentStructure means that two trees have different structures.
	DifferentStructure ErrorKind = iota
	// TooDeep means that a tree has more than MaxDepth levels or contains itself.
	TooDeep
	// TooLarge means that a tree has more than MaxSize members.
	TooLarge
	// NaNKey means that a map has a NaN key.
	NaNKey
	// WrongMemberType means that a result of a callback is not assignable to the element or field type.
	WrongMemberType
)

// Error reports an invalid nest, which is a tree of slices, maps and structs. Hint suggests a correction.
type Error struct {
	ErrorKind    ErrorKind
	Reason, Hint string
}

func (e *Error) Error() string { return e.Reason + "; " + e.Hint }

// Kind returns errkind.ValueError.
func (*Error) Kind() errkind.Kind { return errkind.ValueError }

// IsNest reports whether t is the type of a tree of slices, maps and structs instead of a leaf.
func IsNest(t reflect.Type) bool { return isNestAt(t, 0) }

func isNestAt(t reflect.Type, depth int) bool {
	if depth > MaxDepth {
		return false
	}
	switch t.Kind() {
	case reflect.Slice, reflect.Map:
		e := t.Elem()
		return e.Kind() == reflect.Interface || isNestAt(e, depth+1)
	case reflect.Struct:
		for i := range t.NumField() {
			f := t.Field(i)
			if !f.IsExported() || f.Type.Kind() != reflect.Interface && !isNestAt(f.Type, depth+1) {
				return false
			}
		}
		return t.NumField() > 0
	}
	return false
}

// Zip traverses trees of slices, maps and structs that have the same structure. It calls leaf with
// the path and the values of each leaf, and returns a tree of the results. A path consists of name
// and indexes such as .Field[0][key]. Zip returns an [*Error] or an error of leaf.
func Zip(name string, nests []any, leaf func(path string, leaves []any) (any, error)) (any, error) {
	values := make([]reflect.Value, len(nests))
	for i, n := range nests {
		values[i] = reflect.ValueOf(n)
	}
	out, err := (&zipper{name: name, leaf: leaf}).zip(name, values, 0)
	if err != nil || !out.IsValid() {
		return nil, err
	}
	return out.Interface(), nil
}

// Map returns a copy of a tree with each leaf replaced by the result of the callback. See [Zip].
func Map(name string, nest any, leaf func(path string, x any) (any, error)) (any, error) {
	return Zip(name, []any{nest}, func(path string, leaves []any) (any, error) { return leaf(path, leaves[0]) })
}

// zipper contains the state of a call of Zip.
type zipper struct {
	name string
	leaf func(path string, leaves []any) (any, error)
	size int
}

// structureError returns an error for trees whose structures differ at path.
func (z *zipper) structureError(path, format string, args ...any) (reflect.Value, error) {
	return reflect.Value{}, &Error{DifferentStructure, cmp.Or(path, "the nest") + ": " + fmt.Sprintf(format, args...),
		"return the same structure on all replicas"}
}

func (z *zipper) limitError(m ErrorKind, format string, limit int) (reflect.Value, error) {
	text := fmt.Sprintf(format, limit)
	if z.name != "" {
		text = z.name + ": " + text
	}
	return reflect.Value{}, &Error{m, text, "use a tree"}
}

func (z *zipper) zip(path string, values []reflect.Value, depth int) (reflect.Value, error) {
	z.size++
	switch {
	case depth > MaxDepth:
		return z.limitError(TooDeep, "the nest has more than %d levels or contains itself", MaxDepth)
	case z.size > MaxSize:
		return z.limitError(TooLarge, "the nest has more than %d members", MaxSize)
	}
	first := values[0]
	branch := first.IsValid() && IsNest(first.Type())
	for i, v := range values {
		if (v.IsValid() && IsNest(v.Type())) != branch || branch && v.Type() != first.Type() {
			return z.structureError(path, "replica %d has %s, replica 0 %s", i, typeName(v), typeName(first))
		}
	}
	if !branch {
		leaves := make([]any, len(values))
		for i, v := range values {
			if v.IsValid() {
				leaves[i] = v.Interface()
			}
		}
		out, err := z.leaf(path, leaves)
		return reflect.ValueOf(out), err
	}
	switch first.Kind() {
	case reflect.Slice:
		return z.slices(path, values, depth)
	case reflect.Map:
		return z.maps(path, values, depth)
	}
	out := reflect.New(first.Type()).Elem()
	for j := range first.NumField() {
		field := first.Type().Field(j)
		x, err := z.member(path+"."+field.Name, field.Type, values, depth,
			func(v reflect.Value) reflect.Value { return v.Field(j) })
		if err != nil {
			return out, err
		}
		out.Field(j).Set(x)
	}
	return out, nil
}

func (z *zipper) slices(path string, values []reflect.Value, depth int) (reflect.Value, error) {
	first := values[0]
	for i, v := range values {
		if v.Len() != first.Len() {
			return z.structureError(path, "replica %d has %d members, replica 0 %d", i, v.Len(), first.Len())
		}
	}
	out := reflect.MakeSlice(first.Type(), first.Len(), first.Len())
	for j := range first.Len() {
		x, err := z.member(path+"["+strconv.Itoa(j)+"]", first.Type().Elem(), values, depth,
			func(v reflect.Value) reflect.Value { return v.Index(j) })
		if err != nil {
			return out, err
		}
		out.Index(j).Set(x)
	}
	return out, nil
}

func (z *zipper) maps(path string, values []reflect.Value, depth int) (reflect.Value, error) {
	first := values[0]
	keys := sortedKeys(first)
	if slices.ContainsFunc(keys, func(k reflect.Value) bool { return !k.Equal(k) }) {
		return first, &Error{NaNKey, cmp.Or(path, "the nest") + " has NaN as a key",
			"use keys that are equal to themselves"}
	}
	for i, v := range values {
		if got := sortedKeys(v); !slices.EqualFunc(keys, got, func(a, b reflect.Value) bool { return a.Equal(b) }) {
			return z.structureError(path, "replica %d has keys %v, replica 0 %v", i, toInterfaces(got), toInterfaces(keys))
		}
	}
	out := reflect.MakeMap(first.Type())
	for _, key := range keys {
		x, err := z.member(fmt.Sprintf("%s[%v]", path, key), first.Type().Elem(), values, depth,
			func(v reflect.Value) reflect.Value { return v.MapIndex(key) })
		if err != nil {
			return out, err
		}
		out.SetMapIndex(key, x)
	}
	return out, nil
}

// member zips one element or field of the trees. get returns the element or field of a tree. t is
// the type of the element or field in the result.
func (z *zipper) member(path string, t reflect.Type, values []reflect.Value, depth int,
	get func(reflect.Value) reflect.Value) (reflect.Value, error) {
	members := make([]reflect.Value, len(values))
	for i, v := range values {
		members[i] = get(v)
		if members[i].IsValid() && members[i].Kind() == reflect.Interface {
			members[i] = members[i].Elem()
		}
	}
	out, err := z.zip(path, members, depth+1)
	switch {
	case err != nil:
		return out, err
	case !out.IsValid():
		return reflect.Zero(t), nil
	case !out.Type().AssignableTo(t):
		return out, &Error{WrongMemberType, fmt.Sprintf("%s of type %s cannot hold a %s", path, t, out.Type()),
			"use a member of type any"}
	}
	return out, nil
}

func toInterfaces(values []reflect.Value) []any {
	all := make([]any, len(values))
	for i, v := range values {
		all[i] = v.Interface()
	}
	return all
}

// sortedKeys returns the keys of a map. It sorts numbers by value, and other keys by their text.
func sortedKeys(m reflect.Value) []reflect.Value {
	keys := m.MapKeys()
	zeroKey := reflect.Zero(m.Type().Key())
	slices.SortFunc(keys, func(a, b reflect.Value) int {
		switch {
		case zeroKey.CanInt():
			return cmp.Compare(a.Int(), b.Int())
		case zeroKey.CanUint():
			return cmp.Compare(a.Uint(), b.Uint())
		case zeroKey.CanFloat():
			return cmp.Compare(a.Float(), b.Float())
		case zeroKey.Kind() == reflect.String:
			return strings.Compare(a.String(), b.String())
		}
		return strings.Compare(fmt.Sprintf("%#v", a), fmt.Sprintf("%#v", b))
	})
	return keys
}

func typeName(v reflect.Value) string {
	if !v.IsValid() {
		return "nothing"
	}
	return v.Type().String()
}

// IsIdentical reports whether two leaves are the same pointer, closure or slice memory, or equal
// values of a type without identity, such as numbers.
func IsIdentical(a, b any) bool {
	if a == nil || b == nil {
		return a == nil && b == nil
	}
	x, y := reflect.ValueOf(a), reflect.ValueOf(b)
	if x.Type() != y.Type() {
		return false
	}
	switch x.Kind() {
	case reflect.Func:
		return closureOf(x) == closureOf(y)
	case reflect.Slice, reflect.Map:
		return x.Pointer() == y.Pointer() && (x.Kind() != reflect.Slice || x.Len() == y.Len())
	}
	return x.Comparable() && x.Equal(y)
}

// closureOf returns the address of a closure. Unlike reflect.Value.Pointer, it distinguishes
// closures with the same code.
func closureOf(f reflect.Value) uint64 {
	p := reflect.New(f.Type())
	p.Elem().Set(f)
	return reflect.NewAt(reflect.TypeFor[uintptr](), p.UnsafePointer()).Elem().Uint()
}
