package conformance

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"

	"github.com/gomlx/compute/dtypes/bfloat16"
	"github.com/gomlx/compute/dtypes/float16"
	"github.com/gomlx/gomlx/core/tensors"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/strategy/eager"
)

// distributed contains the values of all replicas on the host.
type distributed struct {
	kind   string // PerReplica, Mirrored or Variable
	values []any
}

// failure represents an error. kind is TensorFlow's name for the kind of the error.
type failure struct {
	kind string
	err  error
}

// failed converts an error of this module to a failure.
func failed(err error) failure { return failure{kind: errkind.KindOf(err).String(), err: err} }

// either returns the value in the cases' form, or a failure if err is not nil.
func (c *caseRun) either(x any, err error) any {
	if err != nil {
		return failed(err)
	}
	return c.show(x)
}

// show copies values to the host and converts them to the cases' form.
func (c *caseRun) show(x any) any {
	ctx := context.Background()
	local := func(v interface {
		Local(context.Context, int) (*tensors.Tensor, error)
	}, s *strategy.TPUStrategy) []any {
		var all []any
		for r := range s.NumReplicasInSync() {
			t, err := v.Local(ctx, r)
			require.NoError(c, err)
			all = append(all, c.show(t))
		}
		return all
	}
	switch x := x.(type) {
	case nil, bool, string, failure, distributed:
		return x
	case *tensors.Tensor:
		if x.Size() == 0 {
			return emptyOf(x.Shape().Dimensions)
		}
		return c.show(x.Value())
	case *strategy.PerReplica:
		return distributed{"PerReplica", local(x, x.Strategy())}
	case *strategy.Mirrored:
		return distributed{"Mirrored", local(x, x.Strategy())}
	case *strategy.Variable:
		return distributed{"Variable", local(x, x.Strategy())}
	case eager.Component:
		t, err := x.Local(ctx)
		require.NoError(c, err)
		return c.show(t)
	case *strategy.Objects:
		d := distributed{kind: "PerReplica"}
		for r := range x.Len() {
			d.values = append(d.values, c.show(x.At(r)))
		}
		return d
	case float16.Float16:
		return float64(x.Float32())
	case bfloat16.BFloat16:
		return float64(x.Float32())
	case fmt.Stringer:
		return x.String()
	}
	v := reflect.ValueOf(x)
	switch v.Kind() {
	case reflect.Slice, reflect.Array:
		list := []any{}
		for i := range v.Len() {
			list = append(list, c.show(v.Index(i).Interface()))
		}
		return list
	case reflect.Map:
		m := map[string]any{}
		for _, k := range v.MapKeys() {
			m[fmt.Sprint(k.Interface())] = c.show(v.MapIndex(k).Interface())
		}
		return m
	case reflect.Struct:
		m := map[string]any{}
		for i := range v.NumField() {
			m[strings.ToLower(v.Type().Field(i).Name)] = c.show(v.Field(i).Interface())
		}
		return m
	case reflect.Float32, reflect.Float64:
		return v.Float()
	case reflect.Int, reflect.Int32, reflect.Int64, reflect.Int8, reflect.Int16:
		return float64(v.Int())
	case reflect.Uint, reflect.Uint32, reflect.Uint64, reflect.Uint8, reflect.Uint16:
		return float64(v.Uint())
	}
	return fmt.Sprintf("%T", x)
}

func emptyOf(dims []int) any {
	if len(dims) <= 1 {
		return []any{}
	}
	list := make([]any, dims[0])
	for i := range list {
		list[i] = emptyOf(dims[1:])
	}
	return list
}

// check compares a result with TensorFlow's result.
func (c *caseRun) check(want, got any) { c.Helper(); c.compare("", want, got) }

func (c *caseRun) compare(path string, want, got any) {
	c.Helper()
	if _, ok := notApplicable(c.form, c.section, c.name, path); ok && path != "" {
		c.leftOut++
		return
	}
	wrong := func() {
		c.Helper()
		c.Errorf("%s: TensorFlow has %v, ours is %v", path, text(want), text(got))
	}
	if kind, ok := errorOf(want); ok {
		f, ok := got.(failure)
		if !ok || !sameKind(kind, f.kind) {
			wrong()
		}
		return
	}
	if f, ok := got.(failure); ok {
		c.Errorf("%s: TensorFlow has %v, ours fails: %v", path, text(want), f.err)
		return
	}
	if m, _ := want.(map[string]any); len(m) == 1 && m["Variable"] != nil {
		c.compare(path, m["Variable"], got)
		return
	}
	if kind, values, ok := distributedOf(want); ok {
		d, ok := got.(distributed)
		if !ok {
			wrong()
			return
		}
		if kind == "Mirrored" && d.kind == "PerReplica" && !allEqual(values) || kind == "Variable" {
			kind = d.kind
		}
		if kind != d.kind || len(values) != len(d.values) {
			wrong()
			return
		}
		for i := range values {
			c.compare(fmt.Sprintf("%s[%d]", path, i), values[i], d.values[i])
		}
		return
	}
	if d, ok := got.(distributed); ok {
		// A tensor that TensorFlow keeps on one device is mirrored in this module.
		if d.kind == "PerReplica" && len(d.values) > 1 {
			wrong()
			return
		}
		for r := range d.values {
			c.compare(path, want, d.values[r])
		}
		return
	}
	switch want := want.(type) {
	case json.Number:
		x, err := want.Float64()
		y, ok := got.(float64)
		if err != nil || !ok || !near(x, y) && !(c.ulp > 0 && math.Abs(x-y) <= c.ulp*math.Abs(x)) {
			wrong()
		}
	case string:
		if want == "nan" {
			if y, ok := got.(float64); ok && math.IsNaN(y) {
				return
			}
		}
		if y, ok := got.(string); !ok || plain(want) != plain(y) {
			wrong()
		}
	case []any:
		list, ok := got.([]any)
		if !ok || len(list) != len(want) {
			wrong()
			return
		}
		for i := range want {
			c.compare(fmt.Sprintf("%s[%d]", path, i), want[i], list[i])
		}
	case map[string]any:
		m, ok := got.(map[string]any)
		if !ok {
			wrong()
			return
		}
		for _, k := range slices.Sorted(keysOf(want)) {
			at := strings.TrimPrefix(path+"."+k, ".")
			y, ok := m[k]
			if !ok {
				if _, left := notApplicable(c.form, c.section, c.name, at); left {
					c.leftOut++
					continue
				}
				c.unmapped("output %q", at)
			}
			c.compare(at, want[k], y)
		}
	default: // bool, nil
		if want != got {
			wrong()
		}
	}
}

func near(x, y float64) bool {
	return x == y || math.Abs(x-y) <= 2e-6*max(math.Abs(x), math.Abs(y), 1)
}

// plain removes the parts that Python adds to names: the module, the output number, and repeated
// spaces.
func plain(s string) string {
	s = strings.TrimSuffix(strings.TrimPrefix(s, "tf.distribute."), ":0")
	for _, enum := range []string{"ReduceOp.", "VariableAggregation.", "VariableAggregationV2.",
		"VariableSynchronization."} {
		s = strings.TrimPrefix(s, enum)
	}
	return strings.Join(strings.Fields(s), " ")
}

func errorOf(want any) (kind string, ok bool) {
	m, _ := want.(map[string]any)
	e, ok := m["error"].(map[string]any)
	if !ok || len(m) != 1 {
		return "", false
	}
	return e["type"].(string), true
}

func sameKind(a, b string) bool {
	norm := func(k string) string {
		if k == "AttributeError" {
			return "TypeError"
		}
		return k
	}
	return norm(a) == norm(b)
}

// distributedOf parses values with a class, such as {"PerReplica": [...]}.
func distributedOf(want any) (kind string, values []any, ok bool) {
	m, _ := want.(map[string]any)
	if len(m) != 1 {
		return "", nil, false
	}
	for k, v := range m {
		list, isList := v.([]any)
		switch {
		case (k == "PerReplica" || k == "Mirrored") && isList:
			return k, list, true
		case strings.HasSuffix(k, "Variable") && isList:
			return "Variable", list, true
		}
	}
	return "", nil, false
}

func allEqual(list []any) bool {
	for _, x := range list {
		if !reflect.DeepEqual(x, list[0]) {
			return false
		}
	}
	return true
}

func text(x any) string {
	if f, ok := x.(failure); ok {
		return fmt.Sprintf("%s (%v)", f.kind, f.err)
	}
	b, err := json.Marshal(x)
	if err != nil {
		return fmt.Sprint(x)
	}
	if d, ok := x.(distributed); ok {
		return fmt.Sprintf("%s%v", d.kind, d.values)
	}
	return string(b)
}
