package ragged

import (
	"fmt"
	"slices"

	"github.com/tpustrategy/tpustrategy/lowering/ir"
)

// attributeInts returns the integers of an attribute, or nil if the attribute does not exist. It
// panics with an [*Error] if the attribute has another type.
func attributeInts(s *ir.Statement, key string) []int {
	switch v := s.Attribute(key).(type) {
	case nil:
		return nil
	case ir.Ints:
		return v
	case ir.Int:
		return []int{int(v)}
	case ir.IntMatrix:
		return slices.Concat(v...)
	}
	panic(unknownAttributeError(s, key))
}

func fieldDims(s *ir.Statement, key, name string) []int {
	if v, ok := s.Attribute(key).(ir.Struct); ok {
		return v.Dims(name)
	}
	panic(unknownAttributeError(s, key))
}

func unknownAttributeError(s *ir.Statement, key string) *Error {
	return &Error{Op: s.OpName(), Dim: -1, Reason: fmt.Sprintf("its attribute %s is unknown", key),
		Hint: "mask the padding in the step (FunctionOptions.Padding: KeepPadding)"}
}

// attributeText returns the text of an attribute, or "" if the attribute does not exist.
func attributeText(s *ir.Statement, key string) string {
	if a := s.Attribute(key); a != nil {
		return string(a.Append(nil))
	}
	return ""
}
