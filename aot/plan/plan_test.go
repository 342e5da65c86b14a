package plan_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/aot/plan"
	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/sharding"
)

func TestAPlanIsAFile(t *testing.T) {
	p := plan.Plan{Slice: "2x v5e:4x4", Replicas: 8, Axes: []sharding.Axis{{Name: "model", Size: 2},
		{Name: "sequence", Size: 2}},
		Rules: logical.Rules{logical.Match(`/up/weights$`, logical.SplitOverAxes("", "model")), logical.MatchState("",
			logical.ShardParameters)},
		RulesName: "own", Settings: map[string]string{"remat": "full"}}
	data, err := json.Marshal(p)
	require.NoError(t, err)
	path := filepath.Join(t.TempDir(), "plan.json")
	require.NoError(t, os.WriteFile(path, data, 0o600))
	got, err := plan.Read(path)
	require.NoError(t, err)
	assert.Equal(t, "2x v5e:4x4: 8 x model=2,sequence=2, rules=own, shard-state=parameters, remat=full", got.String())
	again, err := json.Marshal(got)
	require.NoError(t, err)
	assert.JSONEq(t, string(data), string(again))
	p.Rules = logical.Rules{logical.Match("", logical.SplitInto(1, 2))}
	_, err = json.Marshal(p)
	assert.ErrorContains(t, err, "name the axes")
}

func TestFilesThatAreNoPlanAreRefused(t *testing.T) {
	for name, text := range map[string]string{
		"nothing": "", "another": `{"rules": []}`,
		"a version to come":  `{"version": 2, "slice": "v5e:4x4", "replicas": 1, "axes": "logical=1"}`,
		"no slice":           `{"version": 1, "replicas": 1, "axes": "logical=1"}`,
		"no replicas":        `{"version": 1, "slice": "v5e:4x4", "axes": "logical=1"}`,
		"axes":               `{"version": 1, "slice": "v5e:4x4", "replicas": 1, "axes": "logical"}`,
		"the replicas' axis": `{"version": 1, "slice": "v5e:4x4", "replicas": 1, "axes": "replica=4"}`,
		"rules": `{"version": 1, "slice": "v5e:4x4", "replicas": 1, "axes": "logical=1", "rules": ` +
			`[{"variable": "("}]}`,
		"more": `{"version": 1, "slice": "v5e:4x4", "replicas": 1, "axes": "logical=1", "rule": []}`,
	} {
		_, err := plan.Parse([]byte(text))
		assert.Equal(t, errkind.ValueError, errkind.KindOf(err), "%s: %v", name, err)
	}
	_, err := plan.Read(filepath.Join(t.TempDir(), "none"))
	assert.ErrorIs(t, err, os.ErrNotExist)
}

func TestMoneyHasNoExponents(t *testing.T) {
	for dollars, want := range map[float64]string{0: "$0", 3.06e-5: "$0.000031", 0.00099: "$0.00099", 0.0123: "$0.0123",
		9.6: "$9.6", 95.52: "$95.5", 1e6: "$1000000"} {
		assert.Equal(t, want, plan.FormatDollars(dollars))
	}
}
