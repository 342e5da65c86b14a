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

// The StableHLO builder infers the shapes of results and checks operands. Its printer is not used:
// this file converts its statements to package ir, on which all later passes work.

// irConverter converts the statements of one top-level function and its closures to package ir.
type irConverter struct {
	values     map[string]*ir.Value
	regions    map[*stablehlo.Function]*ir.Region
	ops        map[string]string // StableHLO names by the builder's op names
	nextNumber int               // the first number that is no value's name
	origins    *originTracker

	numConverted int // number of converted statements of the top-level function
}

// IR returns a top-level function with its statements so far. Later calls return the same object
// with the new statements added. IR returns nil for a closure, which is a region of another
// statement.
func (f *Function) IR() *ir.Function {
	if f.parent != nil {
		return nil
	}
	if f.irFunction == nil {
		f.irFunction = &ir.Function{Name: f.fn.Name}
		f.converter = &irConverter{values: map[string]*ir.Value{}, regions: map[*stablehlo.Function]*ir.Region{},
			ops: map[string]string{}, origins: f.builder.origins}
	}
	to := f.irFunction
	for _, v := range f.fn.Inputs[len(to.Parameters):] {
		to.Parameters = append(to.Parameters,
			ir.Parameter{Value: f.converter.convertValue(v), Attributes: convertAttributes(v.Attributes)})
	}
	for _, s := range f.fn.Statements[f.converter.numConverted:] {
		to.Body = append(to.Body, f.converter.convertStatement(s))
	}
	f.converter.numConverted = len(f.fn.Statements)
	for _, v := range f.fn.Outputs[len(to.Results):] {
		to.Results = append(to.Results, ir.Result{Type: irType(v.Shape()), Attributes: convertAttributes(v.Attributes)})
	}
	to.NextNumber = max(to.NextNumber, f.converter.nextNumber)
	return to
}

func irType(s xshapes.Shape) ir.Type { return ir.Type{DType: s.DType, Dims: s.Dimensions} }

// convertValue converts a value of the StableHLO builder to a value of package ir. It returns the
// same ir.Value for each value with this name, because names are unique in a top-level function and
// its closures.
func (t *irConverter) convertValue(v *stablehlo.Value) *ir.Value {
	name := v.String()[1:]
	known, ok := t.values[name]
	if !ok {
		known = &ir.Value{Name: name, Type: irType(v.Shape())}
		if t.origins != nil {
			known.Origin = t.origins.values[v]
		}
		t.values[name] = known
		if n, err := strconv.Atoi(name); err == nil {
			t.nextNumber = max(t.nextNumber, n+1)
		}
	}
	return known
}

func (t *irConverter) convertValues(values []*stablehlo.Value) []*ir.Value {
	if len(values) == 0 {
		return nil
	}
	all := make([]*ir.Value, len(values))
	for i, v := range values {
		all[i] = t.convertValue(v)
	}
	return all
}

func (t *irConverter) convertStatement(s *stablehlo.Statement) *ir.Statement {
	to := &ir.Statement{Operands: t.convertValues(s.Inputs), Results: t.convertValues(s.Outputs)}
	if placeholder, ok := s.Attributes[placeholderKey]; ok {
		to.Placeholder = placeholder
		return to
	}
	op := s.OpType.String()
	if t.ops[op] == "" {
		t.ops[op] = s.OpType.ToStableHLO()
	}
	to.Op, to.Attributes = t.ops[op], convertAttributes(s.Attributes)
	for i, f := range s.FunctionParameters {
		to.Regions = append(to.Regions, t.convertRegion(s.FunctionParametersNames[i], f))
	}
	return to
}

// convertRegion converts a closure to a region. Statements can share a region that combines
// elements.
func (t *irConverter) convertRegion(label string, f *stablehlo.Function) *ir.Region {
	if known, ok := t.regions[f]; ok && known.Label == label {
		return known
	}
	r := &ir.Region{Label: label, Arguments: t.convertValues(f.Inputs)}
	for _, s := range f.Statements {
		r.Body = append(r.Body, t.convertStatement(s))
	}
	t.regions[f] = r
	return r
}

// convertAttributes converts attributes, sorted by key.
func convertAttributes(all map[string]any) []ir.Attribute {
	if len(all) == 0 {
		return nil
	}
	list := make([]ir.Attribute, 0, len(all))
	for _, key := range slices.Sorted(maps.Keys(all)) {
		list = append(list, ir.Attribute{Key: key, Value: convertAttribute(key, all[key])})
	}
	return list
}

func convertAttribute(key string, value any) ir.Attr {
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

// placeholderKey is the attribute of a placeholder statement, whose value is the placeholder.
const placeholderKey = "tpustrategy.placeholder"

// AddPlaceholder adds a placeholder op with operand x and returns its result, which has the given
// shape. placeholder describes the op and is stored in [ir.Statement].Placeholder. The caller must
// replace the statement before the program is written.
func (f *Function) AddPlaceholder(x *stablehlo.Value, result xshapes.Shape, placeholder any) (*stablehlo.Value, error) {
	out, err := stablehlo.CustomCallV2(placeholderKey, "", []*stablehlo.Value{x}, nil, []xshapes.Shape{result.Clone()},
		nil)
	if err != nil {
		return nil, &errkind.Fault{Op: "lowering: AddPlaceholder", Class: errkind.InvalidArgumentError, Err: err}
	}
	f.fn.Statements[len(f.fn.Statements)-1].Attributes = map[string]any{placeholderKey: placeholder}
	return out[0], nil
}

// Value returns the value in [Function.IR] for v. f must be the top-level function that contains v.
func (f *Function) Value(v *stablehlo.Value) *ir.Value {
	f.IR()
	return f.converter.convertValue(v)
}
