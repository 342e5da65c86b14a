package inputcases

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/input"
)

// checkSteps compares a run with the steps, the spec or the error of the case.
func checkSteps(t *testing.T, c recorded, got Outcome) {
	t.Helper()
	var want struct {
		Steps []json.RawMessage
		Spec  *string `json:"element_spec"`
		Error *struct{ Type, Message string }
		Calls any // number of function calls; see runFromFunction
	}
	if c.Outputs[0] == '[' {
		require.NoError(t, json.Unmarshal(c.Outputs, &want.Steps))
	} else {
		d := json.NewDecoder(bytes.NewReader(c.Outputs))
		d.DisallowUnknownFields()
		require.NoError(t, d.Decode(&want))
	}
	if want.Error != nil {
		checkError(t, want.Error.Type, want.Error.Message, got.Err)
		return
	}
	require.NoError(t, got.Err)
	require.Len(t, got.Steps, len(want.Steps))
	for i, step := range got.Steps {
		assert.JSONEq(t, string(want.Steps[i]), MarshalStep(t, step), "step %d", i)
	}
	if want.Spec != nil {
		assert.Equal(t, *want.Spec, SpecText(got.Spec, clusterOf(t, c.Strategy).Replicas))
	}
}

// checkError checks that err is the equivalent of TensorFlow's error.
func checkError(t *testing.T, kind, message string, err error) {
	t.Helper()
	require.Error(t, err)
	switch {
	case kind == "IndexError":
		assert.ErrorIs(t, err, input.ErrNotBatched)
	case kind == "NotFoundError":
		assert.ErrorIs(t, err, input.ErrNotShardable)
	case strings.HasPrefix(message, "Could not apply FILE based sharding"):
		assert.ErrorIs(t, err, input.ErrTooFewFiles)
	case kind == "NotImplementedError":
		assert.ErrorIs(t, err, errors.ErrUnsupported)
	case strings.Contains(message, "same number of replicas"):
		assert.ErrorContains(t, err, "give every process the same number of replicas")
	case kind == "ValueError", kind == "InvalidArgumentError":
		assert.NotErrorIs(t, err, errors.ErrUnsupported, "a wrong argument, not something missing")
	default:
		t.Errorf("error type %s is not known to this test", kind)
	}
}

// MarshalStep encodes a step in the notation of the cases: each leaf is a list of the replicas'
// values.
func MarshalStep(t *testing.T, replicas []input.Element) string {
	t.Helper()
	columns := map[string][]any{}
	for _, e := range replicas {
		for i, path := range e.Paths() {
			columns[path] = append(columns[path], Nested(e.Leaves()[i]))
		}
	}
	text := render(replicas[0], "", func(path string) any {
		if len(replicas) == 1 {
			return map[string]any{"Tensor": columns[path][0]}
		}
		return map[string]any{"PerReplica": columns[path]}
	})
	out, err := json.Marshal(text)
	require.NoError(t, err)
	return string(out)
}

func render(e input.Element, path string, leaf func(path string) any) any {
	if e.IsLeaf() {
		return leaf(path)
	}
	if keys := e.Keys(); keys != nil {
		out := map[string]any{}
		for i, k := range keys {
			out[k] = render(e.At(i), path+"."+k, leaf)
		}
		return out
	}
	out := []any{}
	for i := range e.Len() {
		out = append(out, render(e.At(i), fmt.Sprintf("%s[%d]", path, i), leaf))
	}
	return out
}

// Nested converts a tensor to nested lists.
func Nested(x input.Tensor) any {
	var flat []any
	switch v := x.Flat().(type) {
	case []int64:
		flat = toAny(v)
	case []int32:
		flat = toAny(v)
	case []float32:
		flat = toAny(v)
	case []float64:
		flat = toAny(v)
	case []string:
		flat = toAny(v)
	default:
		panic(fmt.Sprintf("no notation for %v", x))
	}
	for axis := x.Rank() - 1; axis >= 1; axis-- {
		rest, size := []any{}, x.Dim(axis)
		rows := 1
		for i := range axis {
			rows *= x.Dim(i)
		}
		for i := range rows {
			rest = append(rest, flat[i*size:(i+1)*size])
		}
		flat = rest
	}
	if x.Rank() == 0 {
		return flat[0]
	}
	return flat
}

func toAny[T any](v []T) []any {
	out := make([]any, len(v))
	for i := range v {
		out[i] = v[i]
	}
	return out
}

// SpecText returns a spec in TensorFlow's notation.
func SpecText(spec input.Spec, replicas int) string {
	if !spec.IsLeaf() {
		var parts []string
		for i, keys := 0, spec.Keys(); i < spec.Len(); i++ {
			part := SpecText(spec.At(i), replicas)
			if keys != nil {
				part = "'" + keys[i] + "': " + part
			}
			parts = append(parts, part)
		}
		if spec.Keys() != nil {
			return "{" + strings.Join(parts, ", ") + "}"
		}
		return "(" + strings.Join(parts, ", ") + ")"
	}
	s := spec.Leaf()
	dims := make([]string, len(s.Dims))
	for i, d := range s.Dims {
		dims[i] = "None"
		if d >= 0 {
			dims[i] = strconv.Itoa(d)
		}
	}
	shape := strings.Join(dims, ", ")
	if len(dims) == 1 {
		shape += ","
	}
	one := fmt.Sprintf("TensorSpec(shape=(%s), dtype=tf.%s, name=None)", shape, s.Kind)
	if replicas == 1 {
		return one
	}
	return "PerReplicaSpec(" + strings.Join(strings.Split(strings.Repeat(one+"\n", replicas-1)+one, "\n"), ", ") + ")"
}
