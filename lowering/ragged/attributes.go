package ragged

import (
	"fmt"
	"slices"

	"github.com/tpustrategy/tpustrategy/lowering/ir"
)

// ints are the numbers of an attribute, nil without it. It panics with an [*Error] if they are not
// known: an op that is not understood is refused, and not rewritten by half.
func ints(s *ir.Statement, key string) []int {
	switch v := s.Attribute(key).(type) {
	case nil:
		return nil
	case ir.Ints:
		return v
	case ir.Int:
		return []int{int(v)}
	case ir.Rows:
		return slices.Concat(v...)
	}
	panic(unknown(s, key))
}

// field are the numbers of one field of a structured attribute.
func field(s *ir.Statement, key, name string) []int {
	if v, ok := s.Attribute(key).(ir.Fields); ok {
		return v.Dims(name)
	}
	panic(unknown(s, key))
}

func unknown(s *ir.Statement, key string) *Error {
	return &Error{Op: s.Name(), Dim: -1, Reason: fmt.Sprintf("its attribute %s is none that is known", key),
		Hint: "mask the padding in the step (FunctionOptions.Padding: KeepPadding)"}
}

// written is an attribute as it is written, "" without it.
func written(s *ir.Statement, key string) string {
	if a := s.Attribute(key); a != nil {
		return string(a.Append(nil))
	}
	return ""
}
