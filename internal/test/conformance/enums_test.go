package conformance

import (
	"strings"

	"github.com/tpustrategy/tpustrategy/input"
	"github.com/tpustrategy/tpustrategy/strategy"
)

// enumsCase compares the numbers of enumeration values, wherever they are nested.
func enumsCase(c *caseRun, g golden, v *env) {
	known := map[string]map[string]int{
		"VariableSynchronization": {"AUTO": int(strategy.SyncAuto), "NONE": int(strategy.SyncNone), "ON_WRITE": int(strategy.OnWrite), "ON_READ": int(strategy.OnRead)},
		"VariableAggregation": {"NONE": int(strategy.AggregateNone), "SUM": int(strategy.AggregateSum), "MEAN": int(strategy.AggregateMean),
			"ONLY_FIRST_REPLICA": int(strategy.AggregateFirst)},
		"AutoShardPolicy": {"OFF": int(input.Off), "AUTO": int(input.Auto), "FILE": int(input.File), "DATA": int(input.Data), "HINT": int(input.Hint)},
	}
	texts := map[string]map[string]string{"ReduceOp": {"SUM": strategy.Sum.String(), "MEAN": strategy.Mean.String()}}
	checked := false
	for name, values := range g.outputs() {
		m, _ := values.(map[string]any)
		for key, want := range m {
			for enum, numbers := range known {
				if n, ok := numbers[key]; ok && strings.Contains(name, enum) {
					c.compare(name+"."+key, want, float64(n))
					checked = true
				}
			}
			for enum, names := range texts {
				if s, ok := names[key]; ok && strings.Contains(name, enum) {
					c.compare(name+"."+key, want, s)
					checked = true
				}
			}
		}
	}
	if !checked {
		c.byName(g, v)
	}
}
