package conformance

import (
	"fmt"
	"strings"

	"github.com/tpustrategy/tpustrategy/input"
	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/tpu"
)

// enumValues maps TensorFlow's names of enum values to the module's numbers.
var enumValues = map[string]map[string]int{
	"VariableSynchronization": {"AUTO": int(strategy.SyncAuto), "NONE": int(strategy.SyncNone),
		"ON_WRITE": int(strategy.OnWrite), "ON_READ": int(strategy.OnRead)},
	"VariableAggregation": {"NONE": int(strategy.AggregateNone), "SUM": int(strategy.AggregateSum),
		"MEAN":               int(strategy.AggregateMean),
		"ONLY_FIRST_REPLICA": int(strategy.AggregateFirst)},
	"DeviceOrderMode": {"AUTO": int(tpu.AutoOrder), "RING": int(tpu.RingOrder), "MESH": int(tpu.MeshOrder)},
	"AutoShardPolicy": {"OFF": int(input.Off), "AUTO": int(input.Auto), "FILE": int(input.File), "DATA": int(input.Data),
		"HINT": int(input.Hint)},
}

// enumTexts maps TensorFlow's names of enum values to the module's values, for enums with string
// values.
var enumTexts = map[string]map[string]fmt.Stringer{
	"ReduceOp":             {"SUM": strategy.Sum, "MEAN": strategy.Mean},
	"InputReplicationMode": {"PER_WORKER": input.PerWorker, "PER_REPLICA": input.PerReplica},
}

// enumOf returns the table for an output. The output's name may contain other parts, such as a
// version.
func enumOf[T any](name string, tables map[string]T) (of T, ok bool) {
	for enum, table := range tables {
		if strings.Contains(name, enum) {
			return table, true
		}
	}
	return of, false
}

// hasEnums reports whether outputs are values of enums.
func hasEnums(outputs map[string]any) bool {
	for name := range outputs {
		_, numbers := enumOf(name, enumValues)
		_, texts := enumOf(name, enumTexts)
		if numbers || texts {
			return true
		}
	}
	return false
}

// enumsCase compares enum values and conversions between enums.
func enumsCase(c *caseRun, g golden, v *env) {
	if !hasEnums(g.outputs()) {
		c.byName(g, v)
		return
	}
	got := map[string]any{}
	for name, want := range g.outputs() {
		members, _ := want.(map[string]any)
		all := map[string]any{}
		numbers, hasNumbers := enumOf(name, enumValues)
		texts, hasTexts := enumOf(name, enumTexts)
		for key := range members {
			n, known := numbers[key]
			text, knownText := texts[key]
			switch {
			case hasNumbers && known:
				all[key] = float64(n)
			case hasTexts && knownText:
				all[key] = pythonName(text.String())
			case strings.Contains(name, "from_aggregation"):
				aggregation, known := aggregations[key]
				if !known {
					c.unmapped("aggregation %q", key)
				}
				op, err := aggregation.ReduceOp()
				if all[key] = op.String(); err != nil {
					all[key] = failed(err)
				}
			default:
				c.unmapped("value %q of the enumeration %q", key, name)
			}
		}
		got[name] = all
	}
	c.check(g.Outputs, got)
}

// pythonName converts a Go name, such as PerReplica, to Python's notation, PER_REPLICA.
func pythonName(name string) string {
	if name == strings.ToUpper(name) {
		return name
	}
	var out strings.Builder
	for i, r := range name {
		if i > 0 && r >= 'A' && r <= 'Z' {
			out.WriteByte('_')
		}
		out.WriteRune(r)
	}
	return strings.ToUpper(out.String())
}
