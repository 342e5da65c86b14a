package conformance

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
)

// caseFile contains the cases of a file by form. The form of a case is determined by its fields.
type caseFile struct {
	// rest contains the fields of the file other than the cases.
	rest  map[string]json.RawMessage
	cases map[string][]json.RawMessage
}

// forms maps a field that only cases of one form have to the form. beside maps the other fields of
// a file to their form.
var (
	forms = map[string]string{"kind": "device_assignment", "api": "sharding", "section": "strategy_semantics",
		"num_logical_devices": "tpu_graph"}
	beside = map[string]string{
		"topologies": "device_assignment", "ring_3d": "device_assignment", "get_sharding_tile_shape": "sharding",
		"device_tables": "sharding",
		"oracle":        "", "generator": "", "conventions": "", "hlo_oracle": "",
	}
	// fields lists the fields of the cases of each form.
	fields = map[string][]string{
		"device_assignment":  {"kind", "name", "input", "output", "error"},
		"sharding":           {"api", "name", "input", "output", "error"},
		"strategy_semantics": {"section", "name", "strategy", "inputs", "outputs"},
		"tpu_graph": {"name", "num_replicas", "num_logical_devices", "metadata", "op_counts", "ops", "fn_calls",
			"observed", "error"},
	}
)

// readFile groups the cases of a file by form. Unknown fields are errors.
func readFile(data []byte) (f caseFile, err error) {
	if err := json.Unmarshal(data, &f.rest); err != nil {
		return f, err
	}
	var all []json.RawMessage
	if err := json.Unmarshal(f.rest["cases"], &all); err != nil {
		return f, fmt.Errorf("cases: %w", err)
	}
	delete(f.rest, "cases")
	f.cases = map[string][]json.RawMessage{}
	for key := range f.rest {
		form, ok := beside[key]
		if !ok {
			return f, fmt.Errorf("%q stands beside the cases, which nothing here reads", key)
		}
		if form != "" {
			f.cases[form] = nil
		}
	}
	for i, raw := range all {
		var has map[string]json.RawMessage
		if err := json.Unmarshal(raw, &has); err != nil {
			return f, fmt.Errorf("case %d: %w", i, err)
		}
		form := ""
		for key, of := range forms {
			if has[key] != nil {
				form = of
			}
		}
		if form == "" {
			return f, fmt.Errorf("case %d is of no form that is known: it has %q", i, slices.Sorted(maps.Keys(has)))
		}
		for key := range has {
			if !slices.Contains(fields[form], key) {
				return f, fmt.Errorf("case %d of the form %s: nothing here reads its %q", i, form, key)
			}
		}
		f.cases[form] = append(f.cases[form], raw)
	}
	return f, nil
}

// of returns a file that contains only the cases of one form.
func (f caseFile) of(form string) ([]byte, error) {
	cases := f.cases[form]
	if cases == nil {
		cases = []json.RawMessage{}
	}
	one := map[string]any{"cases": cases}
	for key, raw := range f.rest {
		if beside[key] == form {
			one[key] = raw
		}
	}
	return json.Marshal(one)
}

// checkInputs marks a case as unmapped if the runner did not use all its inputs, because the result
// does not test the unused inputs.
func checkInputs(c *caseRun, g golden) {
	for _, key := range slices.Sorted(maps.Keys(g.Inputs)) {
		if !g.used[key] {
			c.unmapped("input %q of the section %q", key, g.Section)
		}
	}
}
