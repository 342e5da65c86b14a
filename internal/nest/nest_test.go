package nest_test

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/internal/nest"
)

func ExampleZip() {
	a := map[string]any{"x": 1, "y": []any{2, 3}}
	b := map[string]any{"x": 10, "y": []any{20, 30}}
	sum, err := nest.Zip("", []any{a, b}, func(path string, leaves []any) (any, error) {
		fmt.Println(path, leaves)
		return leaves[0].(int) + leaves[1].(int), nil
	})
	fmt.Println(sum, err)
	// Output:
	// [x] [1 10]
	// [y][0] [2 20]
	// [y][1] [3 30]
	// map[x:11 y:[22 33]] <nil>
}

type pair struct{ First, Second any }

func TestIs(t *testing.T) {
	type hidden struct {
		First  any
		second any
	}
	for _, x := range []any{[]any{}, map[string]any{}, map[int][]any{}, [][]any{}, pair{}, []pair{}} {
		assert.True(t, nest.IsNest(reflect.TypeOf(x)), "%T", x)
	}
	for _, x := range []any{1, "text", []float32{}, map[string]int{}, [2]any{}, &pair{}, struct{}{}, hidden{second: 1},
		struct{ A int }{}} {
		assert.False(t, nest.IsNest(reflect.TypeOf(x)), "%T", x)
	}
}

// random returns a nest and its leaves in order.
func random(rng *rand.Rand, depth int, leaves *[]any) any {
	kind := rng.IntN(5)
	if depth == 0 {
		kind = 4
	}
	switch kind {
	case 0:
		s := make([]any, rng.IntN(4))
		for i := range s {
			s[i] = random(rng, depth-1, leaves)
		}
		return s
	case 1:
		m := map[string]any{}
		for _, key := range []string{"a", "b", "c"}[:rng.IntN(4)] {
			m[key] = random(rng, depth-1, leaves)
		}
		return m
	case 2:
		m := map[int]any{}
		for _, key := range []int{-1, 2, 10}[:rng.IntN(4)] {
			m[key] = random(rng, depth-1, leaves)
		}
		return m
	case 3:
		first := random(rng, depth-1, leaves)
		return pair{first, random(rng, depth-1, leaves)}
	}
	x := any(rng.IntN(1000))
	*leaves = append(*leaves, x)
	return x
}

func TestMapIdentity(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 500 {
		var want, got []any
		x := random(rng, 4, &want)
		back, err := nest.Map("", x, func(_ string, leaf any) (any, error) {
			got = append(got, leaf)
			return leaf, nil
		})
		require.NoError(t, err)
		assert.Equal(t, x, back)
		assert.Equal(t, want, got, "in order")
	}
}

func TestZipErrors(t *testing.T) {
	keep := func(_ string, leaves []any) (any, error) { return leaves[0], nil }
	cycle := []any{nil}
	cycle[0] = cycle
	doubled := any([]any{})
	for range 60 {
		doubled = []any{doubled, doubled}
	}
	for name, c := range map[string]struct {
		nests   []any
		leaf    func(string, []any) (any, error)
		mistake nest.ErrorKind
		text    string
	}{
		"types": {[]any{[]any{1}, map[string]any{}}, keep, nest.DifferentStructure,
			"the nest: replica 1 has map[string]interface {}, replica 0 []interface {}"},
		"lengths": {[]any{[]any{1}, []any{1, 2}}, keep, nest.DifferentStructure,
			"the nest: replica 1 has 2 members, replica 0 1"},
		"keys": {[]any{pair{First: map[string]any{"a": 1}}, pair{First: map[string]any{"b": 1}}}, keep,
			nest.DifferentStructure, ".First: replica 1 has keys [b], replica 0 [a]"},
		"a leaf": {[]any{pair{First: 1}, pair{First: []any{}}}, keep, nest.DifferentStructure,
			".First: replica 1 has []interface {}, replica 0 int"},
		"cycle":   {[]any{cycle}, keep, nest.TooDeep, "more than 100 levels"},
		"doubled": {[]any{doubled}, keep, nest.TooLarge, "more than 1048576 members"},
		"NaN":     {[]any{map[float64]any{math.NaN(): 1}}, keep, nest.NaNKey, "the nest has NaN as a key"},
		"member": {[]any{map[string]fmt.Stringer{"a": reflect.ValueOf(1)}},
			func(string, []any) (any, error) { return 1, nil },
			nest.WrongMemberType, "[a] of type fmt.Stringer cannot hold a int"},
	} {
		out, err := nest.Zip("", c.nests, c.leaf)
		var wrong *nest.Error
		require.ErrorAs(t, err, &wrong, name)
		assert.Equal(t, c.mistake, wrong.ErrorKind, name)
		assert.ErrorContains(t, err, c.text, name)
		assert.Nil(t, out)
	}
	own := errors.New("the leaf's own")
	_, err := nest.Map("", []any{1}, func(string, any) (any, error) { return nil, own })
	assert.ErrorIs(t, err, own)
}

func TestSame(t *testing.T) {
	var made []func() int
	for i := range 2 {
		made = append(made, func() int { return i })
	}
	slice := []int{1, 2}
	p, q := new(int), new(int)
	for _, c := range []struct {
		a, b any
		same bool
	}{
		{nil, nil, true}, {nil, 1, false}, {1, 1, true}, {1, int32(1), false}, {"a", "a", true},
		{math.NaN(), math.NaN(), false},
		{p, p, true}, {p, q, false}, {slice, slice, true}, {slice, slice[:1], false}, {slice, []int{1, 2}, false},
		{made[0], made[0], true}, {made[0], made[1], false}, {pair{1, 2}, pair{1, 2}, true},
		{pair{slice, 2}, pair{slice, 2}, false},
	} {
		assert.Equal(t, c.same, nest.IsIdentical(c.a, c.b), "%v and %v", c.a, c.b)
	}
}
