package lowering

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"reflect"
	"slices"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
)

// LargeConstant is the minimum size, in bytes, of constants that are passed to [Options.Constant].
const LargeConstant = 1 << 20

// Constant describes a parameter of the entry function that replaces a large constant.
type Constant struct {
	// Name is the name of the parameter. Constants with the same name share one parameter.
	Name string
	// Value is the value that [Options.Constant] returned for the first constant with this name.
	Value any
}

// HashConstant returns a hash of the shape and the elements of a constant.
func HashConstant(shape shapes.Shape, elements []byte) (sum [sha256.Size]byte) {
	hash := sha256.New()
	fmt.Fprintln(hash, shape)
	hash.Write(elements)
	hash.Sum(sum[:0])
	return sum
}

// largeElements returns the shape and the bytes of a large constant, in row-major order. It returns
// no bytes for a constant that stays in the text: a small constant, a constant of equal elements,
// or a constant of elements smaller than a byte.
func largeElements(flat any, dims []int) (shape shapes.Shape, elements []byte) {
	value := reflect.ValueOf(flat)
	if !value.IsValid() || value.Kind() != reflect.Slice || slices.ContainsFunc(dims, func(d int) bool { return d < 1 }) {
		return shape, nil
	}
	dtype := dtypes.FromGoType(value.Type().Elem())
	if dtype == dtypes.InvalidDType || dtype.IsPacked() || value.Len()*dtype.Size() < LargeConstant {
		return shape, nil
	}
	shape = shapes.Make(dtype, dims...)
	elements = dtypes.UnsafeByteSliceFromAny(flat)
	if shape.Size() != value.Len() || len(elements) != value.Len()*dtype.Size() { // constantFromFlat panics with the error
		return shape, nil
	}
	if size := dtype.Size(); bytes.Equal(elements[size:], elements[:len(elements)-size]) {
		return shape, nil
	}
	return shape, elements
}

// replaceConstant returns the parameter that Options.Constant selects to replace a constant. It
// returns nil if the constant stays in the program's text.
func (f *Function) replaceConstant(flat any, dims []int) (compute.Value, error) {
	b := f.builder
	replace := b.backend.opts.Constant
	if replace == nil || f.topLevel() != b.main {
		return nil, nil
	}
	shape, elements := largeElements(flat, dims)
	if elements == nil {
		return nil, nil
	}
	if err := f.checkOpen(); err != nil {
		return nil, &OpError{Op: "Constant", Function: f.name, Err: err}
	}
	c, err := replace(shape, elements)
	if c.Name == "" || err != nil {
		return nil, err
	}
	if v := b.constantValues[c.Name]; v != nil {
		return v, nil
	}
	v, err := b.main.addParameter(c.Name, shape, nil, false)
	if err != nil {
		return nil, err
	}
	if b.constantValues == nil {
		b.constantValues = map[string]compute.Value{}
	}
	b.constantValues[c.Name] = v
	b.constants = append(b.constants, c)
	return v, nil
}

// moveConstantsLast moves the parameters that replace constants to the end of the parameter list.
func (p *Program) moveConstantsLast() {
	if len(p.Constants) == 0 {
		return
	}
	constant := map[string]bool{}
	for _, c := range p.Constants {
		constant[c.Name] = true
	}
	var order, last []int
	for i, name := range p.ParameterNames {
		if constant[name] {
			last = append(last, i)
		} else {
			order = append(order, i)
		}
	}
	order = append(order, last...)
	main := p.Main()
	p.ParameterNames, p.Parameters, p.Shards = permute(p.ParameterNames, order), permute(p.Parameters, order),
		permute(p.Shards, order)
	main.Parameters = permute(main.Parameters, order)
}

func permute[T any](all []T, order []int) []T {
	if len(all) != len(order) {
		panic(fmt.Sprintf("%d parameters in an order of %d", len(all), len(order)))
	}
	out := make([]T, len(all))
	for i, from := range order {
		out[i] = all[from]
	}
	return out
}
