package plan_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/tpustrategy/tpustrategy/aot/plan"
	"github.com/tpustrategy/tpustrategy/errkind"
)

// Plans that no search writes are refused quickly.
func TestPlansThatLieAreRefused(t *testing.T) {
	of := func(replicas, axes, more string) string {
		return fmt.Sprintf(`{"version": 1, "slice": "v5e:4x4", "replicas": %s, "axes": %q%s}`, replicas, axes, more)
	}
	for name, text := range map[string]string{
		"two of them":              of("1", "logical=1", "") + of("2", "logical=2", ""),
		"noise after it":           of("1", "logical=1", "") + "\x00",
		"a list":                   "[" + of("1", "logical=1", "") + "]",
		"noise":                    "\xff\xfe{",
		"cut":                      of("1", "logical=1", "")[:40],
		"deep":                     of("1", "logical=1", `, "rules": `+strings.Repeat("[", 100_000)),
		"replicas below 0":         of("-4", "logical=1", ""),
		"replicas that are words":  of(`"4"`, "logical=1", ""),
		"more replicas than count": of("1e30", "logical=1", ""),
		"an axis of nothing":       of("1", "logical=0", ""),
		"an axis below 0":          of("1", "logical=-2", ""),
		"an axis without end":      of("1", "logical=99999999999999999999", ""),
		"a mesh without end":       of("1", "a=4294967296,b=4294967296", ""),
		"more devices than count":  of("4611686018427387904", "logical=4", ""),
		"an axis twice":            of("1", "model=2,model=2", ""),
		"a key twice":              of("1", "logical=1", `, "replicas": 2`),
		"keys of another case":     of("1", "logical=1", `, "Replicas": 2`),
		"many axes":                of("1", strings.Repeat("a=1,", 100_000)+"b=1", ""),
		"rules that are words":     of("1", "logical=2", `, "rules": "all"`),
		"a rule of nothing":        of("1", "logical=2", `, "rules": [{}]`),
		"a state nobody knows":     of("1", "logical=2", `, "rules": [{"variable": "", "state": "everything"}]`),
		"a rule in a rule":         of("1", "logical=2", `, "rules": [{"variable": "", "state": "none"}], "rules_name": {}`),
		"settings of numbers":      of("1", "logical=2", `, "settings": {"remat": 3}`),
	} {
		_, err := plan.Parse([]byte(text))
		if assert.Error(t, err, name) {
			assert.Equal(t, errkind.ValueError, errkind.KindOf(err), name)
		}
	}
}
