package pjrt

import (
	"maps"
	"slices"
	"strings"

	"github.com/tpustrategy/tpustrategy/pjrt/internal/capi"
)

// cloneAttributes returns a deep copy of an attribute map.
func cloneAttributes(m map[string]any) map[string]any {
	out := make(map[string]any, len(m))
	for k, v := range m {
		if l, ok := v.([]int64); ok {
			v = slices.Clone(l)
		}
		out[k] = v
	}
	return out
}

// namedValues converts plugin options to a list that is sorted by name. An option of an unsupported
// type is an error. Values of type int are converted to int64.
func namedValues(options map[string]any) ([]capi.NamedValue, error) {
	out := make([]capi.NamedValue, 0, len(options))
	for _, name := range slices.Sorted(maps.Keys(options)) {
		v := options[name]
		if name == "" || strings.ContainsRune(name, 0) {
			return nil, optionError(name, "", "the name is empty or contains a NUL byte")
		}
		switch x := v.(type) {
		case string:
			if strings.ContainsRune(x, 0) {
				return nil, optionError(name, "", "the string contains a NUL byte")
			}
		case int64, float32, bool:
		case []int64:
			v = slices.Clone(x)
		case int:
			v = int64(x)
		case []int:
			list := make([]int64, len(x))
			for i, n := range x {
				list[i] = int64(n)
			}
			v = list
		default:
			return nil, optionError(name, "use string, int64, int, []int64, []int, float32 or bool",
				"values of type %T are not supported", v)
		}
		out = append(out, capi.NamedValue{Name: name, Value: v})
	}
	return out, nil
}
