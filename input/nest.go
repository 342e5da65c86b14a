package input

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// Nest is a tree: a leaf, an ordered tuple of nests, or a dictionary of named nests, like the
// structures of tf.nest. Leaves are visited depth first: the members of a tuple in order, and the
// entries of a dictionary in the byte order of their keys.
//
// A Nest is immutable and safe for concurrent use. The zero Nest has no leaves.
type Nest[T any] struct {
	shape    nestShape
	leaf     T
	keys     []string
	children []Nest[T]
}

type nestShape uint8

const (
	nestEmpty nestShape = iota
	nestLeaf
	nestTuple
	nestDict
)

// Leaf returns a nest that is a single leaf.
func Leaf[T any](leaf T) Nest[T] { return Nest[T]{shape: nestLeaf, leaf: leaf} }

// Tuple returns a nest that is a tuple of the members.
func Tuple[T any](members ...Nest[T]) Nest[T] {
	return Nest[T]{shape: nestTuple, children: slices.Clone(members)}
}

// Dict returns a nest that is a dictionary of the entries.
func Dict[T any](entries map[string]Nest[T]) Nest[T] {
	n := Nest[T]{shape: nestDict, keys: slices.Sorted(maps.Keys(entries))}
	for _, k := range n.keys {
		n.children = append(n.children, entries[k])
	}
	return n
}

// IsZero reports whether n is the zero Nest.
func (n Nest[T]) IsZero() bool { return n.shape == nestEmpty }

// IsLeaf reports whether the nest is a single leaf.
func (n Nest[T]) IsLeaf() bool { return n.shape == nestLeaf }

// Leaf returns the leaf if the nest is a single leaf, and the zero T otherwise.
func (n Nest[T]) Leaf() T { return n.leaf }

// Len returns the number of members of a tuple or entries of a dictionary. It returns 0 for a leaf.
func (n Nest[T]) Len() int { return len(n.children) }

// At returns member i of a tuple, or entry i of a dictionary in the order of the keys. It returns
// the zero Nest if i is out of range.
func (n Nest[T]) At(i int) Nest[T] {
	if i < 0 || i >= len(n.children) {
		return Nest[T]{}
	}
	return n.children[i]
}

// Keys returns a copy of the sorted keys of a dictionary. It returns nil for other nests.
func (n Nest[T]) Keys() []string { return slices.Clone(n.keys) }

// Get returns the entry of a dictionary for key. It returns false if there is no such entry.
func (n Nest[T]) Get(key string) (Nest[T], bool) {
	i, ok := slices.BinarySearch(n.keys, key)
	if !ok {
		return Nest[T]{}, false
	}
	return n.children[i], true
}

// Leaves returns the leaves in visiting order, like tf.nest.flatten.
func (n Nest[T]) Leaves() []T {
	return n.appendLeaves(make([]T, 0, max(1, len(n.children))))
}

func (n Nest[T]) appendLeaves(out []T) []T {
	if n.shape == nestLeaf {
		return append(out, n.leaf)
	}
	for i := range n.children {
		out = n.children[i].appendLeaves(out)
	}
	return out
}

// Paths returns the path of each leaf in visiting order, such as "[0].image". The path of a single
// leaf is "".
func (n Nest[T]) Paths() []string {
	var out []string
	_, _ = MapNest(n, func(path string, leaf T) (T, error) {
		out = append(out, path)
		return leaf, nil
	})
	return out
}

func (n Nest[T]) childPath(path string, i int) string {
	if n.shape == nestDict {
		return path + "." + n.keys[i]
	}
	return path + "[" + strconv.Itoa(i) + "]"
}

// MapNest calls f for every leaf in visiting order and returns a nest of the results with the same
// structure, like tf.nest.map_structure. f receives the path of the leaf, as in [Nest.Paths].
// MapNest stops at the first error.
func MapNest[A, B any](n Nest[A], f func(path string, leaf A) (B, error)) (Nest[B], error) {
	return mapNest(n, "", f)
}

func mapNest[A, B any](n Nest[A], path string, f func(string, A) (B, error)) (Nest[B], error) {
	out := Nest[B]{shape: n.shape, keys: n.keys}
	if n.shape == nestLeaf {
		leaf, err := f(path, n.leaf)
		if err != nil {
			return Nest[B]{}, err
		}
		out.leaf = leaf
		return out, nil
	}
	if len(n.children) > 0 {
		out.children = make([]Nest[B], len(n.children))
	}
	for i, kid := range n.children {
		mapped, err := mapNest(kid, n.childPath(path, i), f)
		if err != nil {
			return Nest[B]{}, err
		}
		out.children[i] = mapped
	}
	return out, nil
}

// unflatten returns a nest with the structure of n and the given leaves in visiting order.
func unflatten[A, B any](n Nest[A], leaves []B) Nest[B] {
	next := 0
	out, _ := MapNest(n, func(string, A) (B, error) {
		next++
		return leaves[next-1], nil
	})
	return out
}

// sameStructure reports whether both nests have the same tuples, dictionary keys and leaf positions.
func sameStructure[A, B any](a Nest[A], b Nest[B]) bool {
	if a.shape != b.shape || len(a.children) != len(b.children) || !slices.Equal(a.keys, b.keys) {
		return false
	}
	for i := range a.children {
		if !sameStructure(a.children[i], b.children[i]) {
			return false
		}
	}
	return true
}

// String formats the nest: (a, b) for tuples and {k: a} for dictionaries.
func (n Nest[T]) String() string {
	switch n.shape {
	case nestLeaf:
		return fmt.Sprint(n.leaf)
	case nestTuple, nestDict:
		texts := make([]string, len(n.children))
		for i, kid := range n.children {
			texts[i] = kid.String()
			if n.shape == nestDict {
				texts[i] = n.keys[i] + ": " + texts[i]
			}
		}
		if n.shape == nestDict {
			return "{" + strings.Join(texts, ", ") + "}"
		}
		return "(" + strings.Join(texts, ", ") + ")"
	}
	return "nothing"
}
