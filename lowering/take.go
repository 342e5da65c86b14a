package lowering

import (
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/gomlx/go-xla/stablehlo"
	xshapes "github.com/gomlx/go-xla/types/shapes"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/lowering/ir"
)

// The StableHLO builder infers the shape of each op's result and checks its operands. Its own
// printer is not used: its statements are converted to values of package ir, and all later passes
// work on these values.

// taker converts the statements of one top-level function and its closures.
type taker struct {
	values  map[string]*ir.Value
	regions map[*stablehlo.Function]*ir.Region
	ops     map[string]string // StableHLO names by the builder's op names
	next    int               // the first number that is no value's name
	lines   *lines

	statements int // number of converted statements of the top-level function
}

// IR returns a top-level function with its statements so far. A later call adds the new statements
// to the same value. It returns nil for a closure, which is a region of the statement that uses it.
func (f *Function) IR() *ir.Function {
	if f.parent != nil {
		return nil
	}
	if f.draft == nil {
		f.draft = &ir.Function{Name: f.fn.Name}
		f.taker = &taker{values: map[string]*ir.Value{}, regions: map[*stablehlo.Function]*ir.Region{}, ops: map[string]string{}, lines: f.builder.lines}
	}
	to := f.draft
	for _, v := range f.fn.Inputs[len(to.Parameters):] {
		to.Parameters = append(to.Parameters, ir.Parameter{Value: f.taker.value(v), Attributes: attributesOf(v.Attributes)})
	}
	for _, s := range f.fn.Statements[f.taker.statements:] {
		to.Body = append(to.Body, f.taker.statement(s))
	}
	f.taker.statements = len(f.fn.Statements)
	for _, v := range f.fn.Outputs[len(to.Results):] {
		to.Results = append(to.Results, ir.Result{Type: typeOf(v.Shape()), Attributes: attributesOf(v.Attributes)})
	}
	to.NextNumber = max(to.NextNumber, f.taker.next)
	return to
}

func typeOf(s xshapes.Shape) ir.Type { return ir.Type{DType: s.DType, Dims: s.Dimensions} }

// value returns the value for a name. Names are unique in a top-level function and its closures,
// see names.
func (t *taker) value(v *stablehlo.Value) *ir.Value {
	name := v.String()[1:]
	known, ok := t.values[name]
	if !ok {
		known = &ir.Value{Name: name, Type: typeOf(v.Shape())}
		if t.lines != nil {
			known.Origin = t.lines.values[v]
		}
		t.values[name] = known
		if n, err := strconv.Atoi(name); err == nil {
			t.next = max(t.next, n+1)
		}
	}
	return known
}

func (t *taker) all(values []*stablehlo.Value) []*ir.Value {
	if len(values) == 0 {
		return nil
	}
	all := make([]*ir.Value, len(values))
	for i, v := range values {
		all[i] = t.value(v)
	}
	return all
}

func (t *taker) statement(s *stablehlo.Statement) *ir.Statement {
	to := &ir.Statement{Operands: t.all(s.Inputs), Results: t.all(s.Outputs)}
	if mark, ok := s.Attributes[markKey]; ok {
		to.Mark = mark
		return to
	}
	op := s.OpType.String()
	if t.ops[op] == "" {
		t.ops[op] = s.OpType.ToStableHLO()
	}
	to.Op, to.Attributes = t.ops[op], attributesOf(s.Attributes)
	for i, f := range s.FunctionParameters {
		to.Regions = append(to.Regions, t.region(s.FunctionParametersNames[i], f))
	}
	return to
}

// region converts a closure. A closure that combines elements can be the region of several
// statements.
func (t *taker) region(label string, f *stablehlo.Function) *ir.Region {
	if known, ok := t.regions[f]; ok && known.Label == label {
		return known
	}
	r := &ir.Region{Label: label, Arguments: t.all(f.Inputs)}
	for _, s := range f.Statements {
		r.Body = append(r.Body, t.statement(s))
	}
	t.regions[f] = r
	return r
}

// attributesOf converts attributes, in the order of the text.
func attributesOf(all map[string]any) []ir.Attribute {
	if len(all) == 0 {
		return nil
	}
	list := make([]ir.Attribute, 0, len(all))
	for _, key := range slices.Sorted(maps.Keys(all)) {
		list = append(list, ir.Attribute{Key: key, Value: attributeOf(key, all[key])})
	}
	return list
}

// attributeOf converts one attribute.
func attributeOf(key string, value any) ir.Attr {
	switch v := value.(type) {
	case ir.Attr:
		return v
	case string:
		return ir.String(v)
	case bool:
		return ir.Bool(v)
	case int64:
		return ir.Int(v)
	case int32:
		return ir.Int32(v)
	case float32:
		return ir.Float32(v)
	case interface{ ToStableHLO() string }:
		return ir.ParseAttr(v.ToStableHLO())
	}
	return ir.Raw(fmt.Sprintf("unknown attribute %s of type %T", key, value))
}

// markKey is the only attribute of a statement that represents a mark.
const markKey = "tpustrategy.mark"

// Mark adds a placeholder statement with operand x and returns its result, of the given shape. In
// [Function.IR] it is an [ir.Statement] with that Mark. The caller must replace the statement
// before the program is written.
func (f *Function) Mark(x *stablehlo.Value, result xshapes.Shape, mark any) (*stablehlo.Value, error) {
	out, err := stablehlo.CustomCallV2(markKey, "", []*stablehlo.Value{x}, nil, []xshapes.Shape{result.Clone()}, nil)
	if err != nil {
		return nil, &errkind.Fault{Op: "lowering: Mark", Class: errkind.InvalidArgumentError, Err: err}
	}
	f.fn.Statements[len(f.fn.Statements)-1].Attributes = map[string]any{markKey: mark}
	return out[0], nil
}

// Value returns the value in [Function.IR] that corresponds to v. f must be the top-level function
// that contains v.
func (f *Function) Value(v *stablehlo.Value) *ir.Value {
	f.IR()
	return f.taker.value(v)
}
