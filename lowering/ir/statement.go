package ir

import (
	"slices"
	"strconv"
	"strings"
)

// Value is a result of a statement, or an argument of a function or region. Its name is unique in
// the function and has no leading %. A value must not be changed after its first use.
type Value struct {
	Name string
	Type Type
	// Origin is nil for a value that does not belong to an op of the graph.
	Origin *Origin
}

// Attribute is a named attribute. If Value is nil, the attribute is a flag, and only its name is
// written.
type Attribute struct {
	Key   string
	Value Attr
}

// Form is the MLIR text format of a statement or a function signature.
type Form int

const (
	// GenericMultiline is MLIR's generic form with one attribute per line, as the StableHLO builder
	// writes it.
	GenericMultiline Form = iota
	// Generic is MLIR's generic form with the attributes on one line.
	Generic
	// Custom is the short form that MLIR's printer writes, such as stablehlo.add %a, %b :
	// tensor<f32>. [Module.Text] supports it for the ops that this module adds.
	Custom
)

// Statement is one operation of a function or region.
type Statement struct {
	// Op is the name with its dialect, such as stablehlo.add. It is "" for a placeholder.
	Op       string
	Operands []*Value
	Results  []*Value
	// ResultName is the common name of results created by [NewResults], or "".
	ResultName string
	Attributes []Attribute
	Regions    []*Region
	Form       Form
	// Placeholder is not nil if the statement represents an operation that a pass must lower later.
	// Its type describes the operation.
	Placeholder any
}

// Region is a list of statements inside a statement, such as a loop body, a branch, or the function
// that combines two elements in a reduction.
type Region struct {
	// Label is the name of the block. It is "" for a block without arguments.
	Label     string
	Arguments []*Value
	Body      []*Statement
}

// Attribute returns the value of the attribute with the given key, or nil.
func (s *Statement) Attribute(key string) Attr {
	for _, a := range s.Attributes {
		if a.Key == key {
			return a.Value
		}
	}
	return nil
}

// AddAttribute adds an attribute and returns s.
func (s *Statement) AddAttribute(key string, value Attr) *Statement {
	s.Attributes = append(s.Attributes, Attribute{Key: key, Value: value})
	return s
}

// OpName returns the name of the op without its dialect, such as add.
func (s *Statement) OpName() string { return s.Op[strings.IndexByte(s.Op, '.')+1:] }

// ReplaceAttribute changes the value of an existing attribute. It copies the attribute list first,
// because other statements may share the list.
func (s *Statement) ReplaceAttribute(key string, value Attr) {
	for i, a := range s.Attributes {
		if a.Key == key {
			s.Attributes = slices.Clone(s.Attributes)
			s.Attributes[i].Value = value
		}
	}
}

// NewResults returns results that share one name: name#0, name#1 and so on.
func NewResults(name string, types ...Type) []*Value {
	all := make([]*Value, len(types))
	for i, t := range types {
		all[i] = &Value{Name: name + "#" + strconv.Itoa(i), Type: t}
	}
	return all
}

// Parameter is an argument of a function, with its attributes.
type Parameter struct {
	*Value
	Attributes []Attribute
}

// Result is the type of a function's result, with its attributes.
type Result struct {
	Type       Type
	Attributes []Attribute
}

// Function is a function of a module. The last statement of Body returns the results.
type Function struct {
	Name       string
	Private    bool
	Parameters []Parameter
	Results    []Result
	Body       []*Statement
	Form       Form
	// NextNumber is an unused number, and all larger numbers are unused too. [Function.NewValue]
	// uses numbers as names.
	NextNumber int
}

// NewValue returns a new value whose name is an unused number.
func (f *Function) NewValue(t Type) *Value {
	v := &Value{Name: strconv.Itoa(f.NextNumber), Type: t}
	f.NextNumber++
	return v
}

// NewValueLike returns a new value with the type and the origin of v.
func (f *Function) NewValueLike(v *Value) *Value {
	like := f.NewValue(v.Type)
	like.Origin = v.Origin
	return like
}

// Module is a complete program.
type Module struct {
	Name       string
	Attributes []Attribute
	// Aliases are named attributes, which are written before the module. An [Alias] refers to one.
	Aliases []Attribute
	// Meshes contains declarations of Shardy meshes.
	Meshes    []Attr
	Functions []*Function
}

// WalkOperands calls yield for each value that a statement reads, in order. This includes the
// statements in its regions, but not values that are defined inside the regions.
func (s *Statement) WalkOperands(yield func(*Value)) {
	for _, v := range s.Operands {
		yield(v)
	}
	for _, r := range s.Regions {
		inside := make(map[*Value]bool, len(r.Arguments)+len(r.Body))
		for _, v := range r.Arguments {
			inside[v] = true
		}
		for _, inner := range r.Body {
			inner.WalkOperands(func(v *Value) {
				if !inside[v] {
					yield(v)
				}
			})
			for _, v := range inner.Results {
				inside[v] = true
			}
		}
	}
}

// ReplaceOperands returns a copy of the statement in which each operand v is replaced by
// replacement(v), also in regions. It returns s itself if no operand changes.
func (s *Statement) ReplaceOperands(replacement func(v *Value) *Value) *Statement {
	changed := false
	s.WalkOperands(func(v *Value) { changed = changed || replacement(v) != v })
	if !changed {
		return s
	}
	copied := *s
	copied.Operands = slices.Clone(s.Operands)
	for i, v := range s.Operands {
		copied.Operands[i] = replacement(v)
	}
	copied.Regions = nil
	for _, r := range s.Regions {
		body := make([]*Statement, len(r.Body))
		for i, inner := range r.Body {
			body[i] = inner.ReplaceOperands(replacement)
		}
		copied.Regions = append(copied.Regions, &Region{Label: r.Label, Arguments: r.Arguments, Body: body})
	}
	return &copied
}

// Rewrite replaces each statement of a list by the statements that f returns. It rewrites the
// regions of a statement before it calls f. f may return the statement itself, but must not change
// statements that it did not create.
func Rewrite(list []*Statement, f func(*Statement) ([]*Statement, error)) ([]*Statement, error) {
	out := make([]*Statement, 0, len(list))
	for _, s := range list {
		if len(s.Regions) > 0 {
			var err error
			if s, err = s.rewriteRegions(f); err != nil {
				return nil, err
			}
		}
		now, err := f(s)
		if err != nil {
			return nil, err
		}
		out = append(out, now...)
	}
	return out, nil
}

// Map is like [Rewrite], for a function that returns one statement and no error.
func Map(list []*Statement, f func(*Statement) *Statement) []*Statement {
	list, _ = Rewrite(list, func(s *Statement) ([]*Statement, error) { return []*Statement{f(s)}, nil })
	return list
}

// rewriteRegions returns s with rewritten regions. It returns s itself if no region changes.
func (s *Statement) rewriteRegions(f func(*Statement) ([]*Statement, error)) (*Statement, error) {
	var regions []*Region
	for i, r := range s.Regions {
		body, err := Rewrite(r.Body, f)
		if err != nil {
			return nil, err
		}
		if slices.Equal(body, r.Body) {
			continue
		}
		if regions == nil {
			regions = slices.Clone(s.Regions)
		}
		regions[i] = &Region{Label: r.Label, Arguments: r.Arguments, Body: body}
	}
	if regions == nil {
		return s, nil
	}
	changed := *s
	changed.Regions = regions
	return &changed, nil
}
