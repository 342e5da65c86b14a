package report

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/report/cost"
)

// ErrFormat matches the error of [Parse] for data that is not a report.
var ErrFormat = errkind.New(errkind.ValueError, "report: not a report")

func formatError(cause error, format string, args ...any) error {
	return &errkind.Fault{Match: ErrFormat, Reason: fmt.Sprintf(format, args...), Err: cause,
		Hint: "give the JSON form of one Report"}
}

// Parse parses the JSON format of a report. It accepts version 1 too, and adds a note about the
// loop figures of that version. Its errors match [ErrFormat].
func Parse(data []byte) (*Report, error) {
	var r Report
	if err := json.Unmarshal(data, &r); err != nil {
		return nil, formatError(err, "")
	}
	if r.Version == 1 {
		r.Version = formatVersion
		r.note("the report has an older version, which counted each loop once")
	}
	switch {
	case r.Version == 0:
		return nil, formatError(nil, "it has no version")
	case r.Version != formatVersion:
		return nil, formatError(nil, "its version is %d, this program reads %d", r.Version, formatVersion)
	case r.Replicas < 1 || r.LogicalDevices < 1:
		return nil, formatError(nil, "%d replicas of %d logical devices", r.Replicas, r.LogicalDevices)
	}
	if name := findNegative("", reflect.ValueOf(r)); name != "" {
		return nil, formatError(nil, "%s is below 0", name)
	}
	for _, t := range r.Tensors {
		if len(t.Shape) != len(t.Shard) {
			return nil, formatError(nil, "tensor %q has shape %v and shard %v", t.Name, t.Shape, t.Shard)
		}
		for d := range t.Shape {
			if t.Shard[d] > t.Shape[d] && !t.PerReplica {
				return nil, formatError(nil, "tensor %q has shape %v and shard %v", t.Name, t.Shape, t.Shard)
			}
		}
		for _, start := range t.Starts {
			if len(start) != len(t.Shape) {
				return nil, formatError(nil, "tensor %q has a part at %v", t.Name, start)
			}
		}
	}
	if s := r.Schedule; s != nil {
		for _, v := range s.Values {
			if v.Line > len(r.Lines) {
				return nil, formatError(nil, "value %q is of line %d of %d", v.Name, v.Line, len(r.Lines))
			}
			if v.To < v.From {
				return nil, formatError(nil, "value %q is there from %d to %d", v.Name, v.From, v.To)
			}
		}
	}
	if err := checkTorus(r.Torus); err != nil {
		return nil, err
	}
	return &r, nil
}

// findNegative returns the path of the first negative number in a report, or "" if there is none.
// It ignores the costs, which are negative if the compiler provides no cost analysis.
func findNegative(name string, v reflect.Value) (first string) {
	switch v.Kind() {
	case reflect.Struct:
		for field, of := range v.Fields() {
			if first == "" && field.IsExported() && of.Type() != reflect.TypeFor[Cost]() {
				part, _, _ := strings.Cut(field.Tag.Get("json"), ",")
				first = findNegative(strings.Trim(name+"."+part, "."), of)
			}
		}
	case reflect.Pointer:
		if !v.IsNil() {
			return findNegative(name, v.Elem())
		}
	case reflect.Slice, reflect.Array:
		for k := 0; k < v.Len() && first == ""; k++ {
			first = findNegative(name, v.Index(k))
		}
	case reflect.Int, reflect.Int64:
		if v.Int() < 0 {
			return name
		}
	case reflect.Float64:
		if v.Float() < 0 {
			return name
		}
	}
	return first
}

const maxChips = 1 << 20

func checkTorus(t *cost.Torus) error {
	if t == nil {
		return nil
	}
	chips := 1
	for _, n := range t.Shape {
		if n < 1 || n > maxChips/chips {
			return formatError(nil, "a slice of %v chips", t.Shape)
		}
		chips *= n
	}
	inside := func(chip []int) bool {
		for d, at := range chip {
			if at >= t.Shape[d] {
				return false
			}
		}
		return true
	}
	for _, p := range t.Places {
		if !inside(p[:3]) {
			return formatError(nil, "a partition at %v of %v chips", p, t.Shape)
		}
	}
	for _, l := range t.Links {
		if !inside(l.Chip[:]) || l.Axis > 2 {
			return formatError(nil, "a link at %v of %v chips", l.Chip, t.Shape)
		}
	}
	for _, g := range t.Groups {
		for _, group := range g.Groups {
			for _, partition := range group {
				if partition >= len(t.Places) {
					return formatError(nil, "a group of partition %d, of %d", partition, len(t.Places))
				}
			}
		}
	}
	return nil
}
