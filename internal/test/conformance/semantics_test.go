package conformance

import (
	"encoding/json"
	"strconv"
	"strings"
	"testing"

	"github.com/tpustrategy/tpustrategy/internal/test/conformance/inputcases"
)

// section runs a case of one section in an environment.
type section func(c *caseRun, g golden, v *env)

// sections contains the sections that run on devices, once for each number of logical devices.
var sections = map[string]section{
	"reduce": reduceCase, "gather": gatherCase, "all_reduce": allReduceCase, "all_gather": allGatherCase,
	"run_return": runReturnCase, "local_results": localResultsCase, "value_container": valueContainerCase,
	"context": contextCase, "merge_call": mergeCallCase, "variable": variableCase,
	"mirrored_write": mirroredWriteCase, "scatter": scatterCase, "sync_on_read": syncOnReadCase,
	"checkpoint": checkpointCase, "update": updateCase, "non_slot": nonSlotCase, "colocate": colocateCase,
	"broadcast_to": broadcastCase, "reduce_to": reduceToCase, "values_from_function": valuesFromFunctionCase,
	"per_replica": perReplicaCase, "numpy_dataset": numpyDatasetCase, "run_steps": runStepsCase,
	"default": defaultCase, "base": baseCase, "replica_context": replicaContextCase,
	"enums": enumsCase, "batch_reduce_to": reduceToCase, "tpu_run": tpuRunCase, "tpu_variable": tpuVariableCase,
}

// inputCase runs a case of input distribution, rebatching or auto-sharding on package input.
func inputCase(c *caseRun, g golden) { inputcases.Run(c.T, g.raw) }

// hostSections contains the sections that do not require devices.
var hostSections = map[string]func(c *caseRun, g golden){
	"input": inputCase, "input_from_function": inputCase, "rebatch": inputCase, "auto_shard": inputCase,
	"cluster_resolver": resolverCase,
}

func runSemantics(t *testing.T, s *tally, data []byte, w *world) {
	var all struct{ Cases []json.RawMessage }
	decode(t, data, &all)
	for _, raw := range all.Cases {
		var g golden
		decode(t, raw, &g)
		g.raw = raw
		s.run(t, "strategy_semantics", g.Section, g.Name, g.Strategy, func(c *caseRun) { runCase(c, g, w) })
	}
}

// runCase runs a case for each of its strategies and for each number of logical devices. A case
// with unused inputs fails.
func runCase(c *caseRun, g golden, w *world) {
	g.Section = sectionOf(g.Section)
	if host, ok := hostSections[g.Section]; ok {
		host(c, g)
		return
	}
	g.used = map[string]bool{}
	switch dtype, _ := g.Inputs["dtype"].(string); dtype {
	case "float16", "half":
		c.ulp = 0x1p-10
	case "bfloat16":
		c.ulp = 0x1p-7
	}
	for _, one := range byStrategy(c, g) {
		runOn(c, one, w)
	}
	checkInputs(c, g)
}

// runOn runs a case of one strategy.
func runOn(c *caseRun, g golden, w *world) {
	run, ok := sections[g.Section]
	if !ok {
		run = (*caseRun).byName
	}
	for _, p := range []int{1, 2} {
		if strings.Contains(g.Strategy, "2x2") && p == 1 {
			continue
		}
		if m := countText.FindStringSubmatch(g.Strategy); m != nil && p > 1 {
			if n, err := strconv.Atoi(m[1]); err == nil && n*p > maxDevices {
				continue
			}
		}
		func() {
			defer func() {
				switch p := recover().(type) {
				case nil:
				case refused: // the rest of the case cannot run
					for key := range g.Inputs {
						g.has(key)
					}
					var got any = c.refused
					if _, whole := errorOf(g.Outputs); !whole {
						each := map[string]any{}
						for k := range g.outputs() {
							each[k] = c.refused
						}
						got = each
					}
					c.check(g.Outputs, got)
				default:
					panic(p)
				}
			}()
			run(c, g, w.envOf(c, g.Strategy, p))
		}()
	}
}
