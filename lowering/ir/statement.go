package ir

import (
	"slices"
	"strconv"
	"strings"
)

// Value is what a statement makes or a function takes: a name that is unique in its function,
// without MLIR's %, and a type. A value is not changed once it is used.
type Value struct {
	Name string
	Type Type
	// Origin is nil for a value that no op of a graph made.
	Origin *Origin
}

// Attribute is a named attribute. One without a value is a flag that stands by its name alone.
type Attribute struct {
	Key   string
	Value Attr
}

// Form is how a statement or a function's head is laid out in the text.
type Form int

const (
	// Long is the generic form of MLIR with an attribute on each line, as the StableHLO builder
	// lays its statements out.
	Long Form = iota
	// Inline is the generic form with the attributes on one line.
	Inline
	// Short is the form that MLIR's own printer prefers, such as stablehlo.add %a, %b :
	// tensor<f32>. [Module.Text] knows the short forms of the ops that packages of this module
	// write.
	Short
)

// Statement is one operation.
type Statement struct {
	// Op is the name with its dialect, such as stablehlo.add.
	Op       string
	Operands []*Value
	Results  []*Value
	// Pack is the common name of results that [Pack] made, "" for others.
	Pack string
	// Attributes are in the order of the text.
	Attributes []Attribute
	Regions    []*Region
	Form       Form
	// Mark is what the statement stands for until a pass replaces it, nil for an operation as it
	// is written. Op is then "".
	Mark any
}

// Region is a block of statements inside a statement: the body of a loop, a branch, or how a
// reduction combines two elements.
type Region struct {
	// Label is the name of the block, "" for one that takes no arguments.
	Label     string
	Arguments []*Value
	Body      []*Statement
}

// Attribute returns the value of an attribute, nil if the statement has none of that name.
func (s *Statement) Attribute(key string) Attr {
	for _, a := range s.Attributes {
		if a.Key == key {
			return a.Value
		}
	}
	return nil
}

// With adds an attribute to a statement that is being made, and returns the statement.
func (s *Statement) With(key string, value Attr) *Statement {
	s.Attributes = append(s.Attributes, Attribute{Key: key, Value: value})
	return s
}

// Name returns the op without its dialect, such as add.
func (s *Statement) Name() string { return s.Op[strings.IndexByte(s.Op, '.')+1:] }

// Replace sets an attribute to another value, in a list of its own. It adds none.
func (s *Statement) Replace(key string, value Attr) {
	for i, a := range s.Attributes {
		if a.Key == key {
			s.Attributes = slices.Clone(s.Attributes)
			s.Attributes[i].Value = value
		}
	}
}

// Pack makes the results of a statement that has one name for all of them: name#0, name#1 and so
// on.
func Pack(name string, types ...Type) []*Value {
	all := make([]*Value, len(types))
	for i, t := range types {
		all[i] = &Value{Name: name + "#" + strconv.Itoa(i), Type: t}
	}
	return all
}

// Parameter is an argument of a function with the attributes that stand behind it.
type Parameter struct {
	*Value
	Attributes []Attribute
}

// Result is the type of a function's result with the attributes that stand behind it.
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
	// Next is the first number that names no value of the function; see [Function.Fresh].
	Next int
}

// Fresh returns a new value, named by a number that no other value of the function has.
func (f *Function) Fresh(t Type) *Value {
	v := &Value{Name: strconv.Itoa(f.Next), Type: t}
	f.Next++
	return v
}

// Like returns a new value of the type and the origin of another one.
func (f *Function) Like(v *Value) *Value {
	like := f.Fresh(v.Type)
	like.Origin = v.Origin
	return like
}

// Module is a whole program.
type Module struct {
	Name       string
	Attributes []Attribute
	// Aliases are attributes that the text writes once, ahead of the module; an [Alias] stands for
	// each where it is used.
	Aliases []Attribute
	// Meshes are the declarations of Shardy's meshes.
	Meshes    []Attr
	Functions []*Function
}

// Reads calls yield for each operand of a statement and of what is within its regions, in order,
// without what is defined within. It is the one walk that finds what a statement depends on.
func (s *Statement) Reads(yield func(*Value)) {
	for _, v := range s.Operands {
		yield(v)
	}
	for _, r := range s.Regions {
		inside := make(map[*Value]bool, len(r.Arguments)+len(r.Body))
		for _, v := range r.Arguments {
			inside[v] = true
		}
		for _, inner := range r.Body {
			inner.Reads(func(v *Value) {
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

// Reading returns the statement with of each operand in the place of that, in its regions too: the
// statement itself if none is another.
func (s *Statement) Reading(of func(v *Value) *Value) *Statement {
	changed := false
	s.Reads(func(v *Value) { changed = changed || of(v) != v })
	if !changed {
		return s
	}
	copied := *s
	copied.Operands = slices.Clone(s.Operands)
	for i, v := range s.Operands {
		copied.Operands[i] = of(v)
	}
	copied.Regions = nil
	for _, r := range s.Regions {
		body := make([]*Statement, len(r.Body))
		for i, inner := range r.Body {
			body[i] = inner.Reading(of)
		}
		copied.Regions = append(copied.Regions, &Region{Label: r.Label, Arguments: r.Arguments, Body: body})
	}
	return &copied
}

// Rewrite returns a list with f of each statement in its place, whose regions were rewritten before.
// f returns the statement itself where nothing changes, or others; it changes no statement that it
// did not make.
func Rewrite(list []*Statement, f func(*Statement) ([]*Statement, error)) ([]*Statement, error) {
	out := make([]*Statement, 0, len(list))
	for _, s := range list {
		if len(s.Regions) > 0 {
			var err error
			if s, err = s.rewritten(f); err != nil {
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

// Map is [Rewrite] where f returns one statement and no error.
func Map(list []*Statement, f func(*Statement) *Statement) []*Statement {
	list, _ = Rewrite(list, func(s *Statement) ([]*Statement, error) { return []*Statement{f(s)}, nil })
	return list
}

// rewritten is a statement with the bodies of its regions rewritten; itself if none changed.
func (s *Statement) rewritten(f func(*Statement) ([]*Statement, error)) (*Statement, error) {
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
