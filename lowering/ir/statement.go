package ir

import (
	"slices"
	"strconv"
	"strings"
)

// Value is a result of a statement or an argument of a function. It has a type and a name, without
// MLIR's %, that is unique in its function. A value must not be changed after its first use.
type Value struct {
	Name string
	Type Type
	// Origin is nil for a value that belongs to no op of a graph.
	Origin *Origin
}

// Attribute is a named attribute. An attribute without a value is a flag; only its name is written.
type Attribute struct {
	Key   string
	Value Attr
}

// Form is the text format of a statement or of a function's signature.
type Form int

const (
	// GenericMultiline is MLIR's generic form with one attribute per line, the format of the
	// StableHLO builder.
	GenericMultiline Form = iota
	// Generic is the generic form with the attributes on one line.
	Generic
	// Custom is the custom form of MLIR's own printer, such as stablehlo.add %a, %b : tensor<f32>.
	// [Module.Text] supports the custom forms of the ops that packages of this module add.
	Custom
)

// Statement is one operation.
type Statement struct {
	// Op is the name with its dialect, such as stablehlo.add.
	Op       string
	Operands []*Value
	Results  []*Value
	// ResultName is the common name of results that were created with [NewResults], or "".
	ResultName string
	// Attributes are in the order of the text.
	Attributes []Attribute
	Regions    []*Region
	Form       Form
	// Mark is the meaning of a placeholder statement until a pass replaces it, and nil for other
	// statements. Op is "" in a placeholder.
	Mark any
}

// Region is a block of statements inside a statement: the body of a loop, a branch, or the function
// that combines two elements in a reduction.
type Region struct {
	// Label is the name of the block, "" for a block without arguments.
	Label     string
	Arguments []*Value
	Body      []*Statement
}

// Attribute returns the value of an attribute, or nil if there is no attribute with the key.
func (s *Statement) Attribute(key string) Attr {
	for _, a := range s.Attributes {
		if a.Key == key {
			return a.Value
		}
	}
	return nil
}

// AddAttribute adds an attribute to a new statement and returns the statement.
func (s *Statement) AddAttribute(key string, value Attr) *Statement {
	s.Attributes = append(s.Attributes, Attribute{Key: key, Value: value})
	return s
}

// OpName returns the op without its dialect, such as add.
func (s *Statement) OpName() string { return s.Op[strings.IndexByte(s.Op, '.')+1:] }

// ReplaceAttribute sets an existing attribute to another value. It copies the attribute list first,
// so other statements with the same list do not change. It adds no attribute.
func (s *Statement) ReplaceAttribute(key string, value Attr) {
	for i, a := range s.Attributes {
		if a.Key == key {
			s.Attributes = slices.Clone(s.Attributes)
			s.Attributes[i].Value = value
		}
	}
}

// NewResults returns the results of a statement with one name for all results: name#0, name#1 and
// so on.
func NewResults(name string, types ...Type) []*Value {
	all := make([]*Value, len(types))
	for i, t := range types {
		all[i] = &Value{Name: name + "#" + strconv.Itoa(i), Type: t}
	}
	return all
}

// Parameter is an argument of a function with its attributes.
type Parameter struct {
	*Value
	Attributes []Attribute
}

// Result is the type of a function's result with its attributes.
type Result struct {
	Type       Type
	Attributes []Attribute
}

// Function is a function of a module. Its last statement returns the results.
type Function struct {
	Name       string
	Private    bool
	Parameters []Parameter
	Results    []Result
	Body       []*Statement
	Form       Form
	// NextNumber is the smallest number that is not the name of a value of the function, see
	// [Function.NewValue].
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
	// Aliases are attributes that are written once at the start of the text. An [Alias] refers to
	// one of them.
	Aliases []Attribute
	// Meshes are the declarations of Shardy meshes.
	Meshes    []Attr
	Functions []*Function
}

// WalkOperands calls yield for each operand of a statement and of the statements nested in its
// regions, in order, without values that are defined in the regions. All passes use it to find the
// dependencies of a statement.
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

// ReplaceOperands returns the statement with each operand v replaced by replacement(v), including
// operands in its regions. It returns the statement itself if no operand changes.
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

// Rewrite returns a list in which each statement is replaced by the result of f. The regions of a
// statement are rewritten before f is called. f returns the statement itself to keep it. f must not
// change statements that it did not create.
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

// Map is [Rewrite] with a function that returns one statement and no error.
func Map(list []*Statement, f func(*Statement) *Statement) []*Statement {
	list, _ = Rewrite(list, func(s *Statement) ([]*Statement, error) { return []*Statement{f(s)}, nil })
	return list
}

// rewriteRegions returns s with rewritten regions, or s itself if no region changed.
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
