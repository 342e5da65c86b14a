package inputcases

import (
	"bytes"
	"context"
	"encoding/json"
	"iter"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/input"
)

// If the name of a case does not describe the dataset, the dataset is reconstructed from the
// recorded steps. The values of the replicas in a step are concatenated to a global batch, which
// the test splits again. The recorded spec determines the dtypes.

// runRebuilt runs a case on a dataset that is reconstructed from the recorded steps.
func runRebuilt(t *testing.T, c recorded, cl Cluster, opts input.Options) {
	var want struct {
		Steps []any
		Spec  string `json:"element_spec"`
		Error any
	}
	d := json.NewDecoder(bytes.NewReader(c.Outputs))
	d.UseNumber()
	if c.Outputs[0] == '[' {
		require.NoError(t, d.Decode(&want.Steps))
	} else {
		require.NoError(t, d.Decode(&want))
	}
	require.Nil(t, want.Error, "this case has neither inputs nor a name that says them")
	require.True(t, cl.Hosts == 1 && (want.Steps != nil || want.Spec != ""),
		"this case has neither inputs nor a name that says them")
	perReplica, known := input.Nest[input.TensorSpec]{}, want.Spec != ""
	if known {
		perReplica = (&specParser{t: t, text: want.Spec}).nest()
	}
	if c.Section == "input_from_function" {
		var list []input.Element
		for _, step := range want.Steps {
			for r := range cl.Replicas {
				if e := join(t, step, perReplica, known, r); e.Leaves()[0].Dim(0) > 0 {
					list = append(list, e)
				}
			}
		}
		checkSteps(t, c, RunHosts(t, cl, opts, -1, func(o input.Options) (*input.DistributedDataset, error) {
			return input.FromFunction(func(input.Context) (input.Dataset, error) {
				return batches(list,
					anyRows(t, list, perReplica)), nil
			}, o)
		}))
		return
	}
	var list []input.Element
	for _, step := range want.Steps {
		list = append(list, join(t, step, perReplica, known, -1))
	}
	got := RunCluster(t, dataset(t, list, perReplica), cl, opts, -1)
	if known && got.Err == nil {
		// Python prints keys in the order in which the case wrote them.
		require.Equal(t, SpecText(perReplica, cl.Replicas), SpecText(got.Spec, cl.Replicas))
		c.Outputs, _ = json.Marshal(map[string]any{"steps": want.Steps})
	}
	checkSteps(t, c, got)
}

// join concatenates the parts of all replicas of a step, or returns the part of one replica.
func join(t *testing.T, step any, spec input.Spec, known bool, replica int) input.Element {
	switch x := step.(type) {
	case []any:
		members := make([]input.Element, len(x))
		for i := range x {
			members[i] = join(t, x[i], member(spec, known, i), known, replica)
		}
		return input.Tuple(members...)
	case map[string]any:
		if parts, ok := x["PerReplica"].([]any); ok {
			if replica >= 0 {
				parts = parts[replica : replica+1]
			}
			return input.Leaf(rows(t, parts, spec, known))
		}
		if part, ok := x["Tensor"]; ok {
			return input.Leaf(rows(t, []any{part}, spec, known))
		}
		entries := map[string]input.Element{}
		for k := range x {
			i := 0
			if known {
				i = slices.Index(spec.Keys(), k)
			}
			entries[k] = join(t, x[k], member(spec, known, i), known, replica)
		}
		return input.Dict(entries)
	}
	t.Fatalf("no value of a step: %v", step)
	return input.Element{}
}

func member(spec input.Spec, known bool, i int) input.Spec {
	if !known {
		return spec
	}
	return spec.At(i)
}

// rows concatenates the rows of several lists to a tensor.
func rows(t *testing.T, parts []any, spec input.Spec, known bool) input.Tensor {
	var flat []any
	var dims []int
	count := 0
	for _, p := range parts {
		list, ok := p.([]any)
		require.True(t, ok, "a batch is a list")
		count += len(list)
		for _, row := range list {
			flat, dims = flattenRow(row, flat)
		}
	}
	kind := input.Int64
	if known {
		kind = spec.Leaf().Kind
		if count == 0 {
			dims = make([]int, len(spec.Leaf().Dims)-1)
		}
	} else if len(flat) > 0 {
		if n, ok := flat[0].(json.Number); ok && strings.ContainsAny(n.String(), ".e") {
			kind = input.Float32
		} else if !ok {
			kind = input.String
		}
	}
	dims = append([]int{count}, dims...)
	var made input.Tensor
	var err error
	switch kind {
	case input.String:
		made, err = input.NewTensor(numbers(flat, func(s string) (string, error) { return s, nil }), dims...)
	case input.Int32:
		made, err = input.NewTensor(numbers(flat, func(s string) (int32, error) {
			n, err := strconv.ParseInt(s, 10,
				32)
			return int32(n), err
		}), dims...)
	case input.Int64:
		made, err = input.NewTensor(numbers(flat, func(s string) (int64, error) { return strconv.ParseInt(s, 10, 64) }),
			dims...)
	case input.Float32:
		made, err = input.NewTensor(numbers(flat, func(s string) (float32, error) {
			x, err := strconv.ParseFloat(s,
				32)
			return float32(x), err
		}), dims...)
	case input.Float64:
		made, err = input.NewTensor(numbers(flat, func(s string) (float64, error) { return strconv.ParseFloat(s, 64) }),
			dims...)
	default:
		t.Fatalf("elements of %v", kind)
	}
	require.NoError(t, err)
	return made
}

func flattenRow(row any, flat []any) (all []any, dims []int) {
	list, ok := row.([]any)
	if !ok {
		return append(flat, row), nil
	}
	dims = []int{len(list)}
	for i, x := range list {
		var inner []int
		flat, inner = flattenRow(x, flat)
		if i == 0 {
			dims = append(dims, inner...)
		}
	}
	return flat, dims
}

func numbers[T any](flat []any, parse func(string) (T, error)) []T {
	list := make([]T, len(flat))
	for i, x := range flat {
		text, ok := x.(string)
		if n, isNumber := x.(json.Number); isNumber {
			text, ok = n.String(), true
		}
		if y, err := parse(text); ok && err == nil {
			list[i] = y
		}
	}
	return list
}

// dataset returns a dataset of global batches. If all components of all batches except the last
// have the same number of rows, the dataset batches individual rows. Otherwise it yields the
// batches unchanged.
func dataset(t *testing.T, list []input.Element, spec input.Spec) input.Dataset {
	size, even := 0, len(list) > 0
	for i, e := range list {
		n := e.Leaves()[0].Dim(0)
		for _, leaf := range e.Leaves() {
			even = even && leaf.Dim(0) == n
		}
		size = max(size, n)
		even = even && (n == size || i == len(list)-1 && n < size)
	}
	static := len(spec.Leaves()) > 0 && len(spec.Leaves()[0].Dims) > 0 && spec.Leaves()[0].Dims[0] >= 0
	if !even || size == 0 || slices.ContainsFunc(spec.Leaves(), func(s input.TensorSpec) bool {
		return len(s.Dims) > 1 &&
			slices.Contains(s.Dims[1:], input.Unknown)
	}) {
		return batches(list, anyRows(t, list, spec))
	}
	return batches(list, anyRows(t, list, spec)).Unbatch().Batch(size, static)
}

// batches returns a dataset of batches with an unknown number of rows.
func batches(list []input.Element, spec input.Spec) input.Dataset {
	return input.FromSeq(func(context.Context, input.Pass) iter.Seq2[input.Element, error] {
		return func(yield func(input.Element, error) bool) {
			for _, e := range list {
				if !yield(e, nil) {
					return
				}
			}
		}
	}, input.SeqOptions{Spec: spec, Count: len(list)})
}

// anyRows returns a spec of batches with an unknown number of rows.
func anyRows(t *testing.T, list []input.Element, spec input.Spec) input.Spec {
	if len(spec.Leaves()) == 0 && len(list) > 0 {
		spec = input.SpecOf(list[0])
	}
	free, err := input.MapNest(spec, func(_ string, s input.TensorSpec) (input.TensorSpec, error) {
		s.Dims = slices.Clone(s.Dims)
		if len(s.Dims) > 0 {
			s.Dims[0] = input.Unknown
		}
		return s, nil
	})
	require.NoError(t, err)
	return free
}

// specParser parses a spec in TensorFlow's notation and returns the spec of one replica.
type specParser struct {
	t    *testing.T
	text string
}

func (p *specParser) skip(prefix string) bool {
	rest, ok := strings.CutPrefix(strings.TrimLeft(p.text, ", "), prefix)
	if ok {
		p.text = rest
	}
	return ok
}

func (p *specParser) until(end string) string {
	before, after, ok := strings.Cut(p.text, end)
	require.True(p.t, ok, "spec %q", p.text)
	p.text = after
	return before
}

func (p *specParser) nest() input.Spec {
	switch {
	case p.skip("PerReplicaSpec("):
		first := p.nest()
		for !p.skip(")") {
			p.nest()
		}
		return first
	case p.skip("TensorSpec(shape=("):
		s := input.TensorSpec{Dims: []int{}}
		for _, d := range strings.FieldsFunc(p.until(")"), func(r rune) bool { return r == ',' || r == ' ' }) {
			n, err := strconv.Atoi(d)
			if err != nil {
				n = input.Unknown
			}
			s.Dims = append(s.Dims, n)
		}
		require.True(p.t, p.skip("dtype=tf."))
		name := p.until(",")
		kinds := map[string]input.Kind{}
		for _, k := range []input.Kind{input.Int32, input.Int64, input.Float32, input.Float64, input.String} {
			kinds[k.String()] = k
		}
		kind, ok := kinds[name]
		require.True(p.t, ok, "dtype %q", name)
		s.Kind = kind
		p.until(")")
		return input.Leaf(s)
	case p.skip("("):
		var members []input.Spec
		for !p.skip(")") {
			members = append(members, p.nest())
		}
		return input.Tuple(members...)
	case p.skip("{"):
		entries := map[string]input.Spec{}
		for !p.skip("}") {
			require.True(p.t, p.skip("'"), "spec %q", p.text)
			key := p.until("'")
			require.True(p.t, p.skip(":") || strings.HasPrefix(p.text, ":"))
			entries[key] = p.nest()
		}
		return input.Dict(entries)
	}
	p.t.Fatalf("spec %q", p.text)
	return input.Spec{}
}
