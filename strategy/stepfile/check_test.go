package stepfile_test

import (
	"bytes"
	"encoding/json"
	"testing"

	"github.com/gomlx/gomlx/core/graph"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/internal/test/plugintest"
	"github.com/tpustrategy/tpustrategy/internal/test/strategytest"
	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/strategy/stepfile"
)

// savedSum returns a saved step on 2 replicas with 2 logical devices, which has a mirrored and a
// per-replica result, and its strategy.
func savedSum(t *testing.T) (*strategy.TPUStrategy, []byte) {
	t.Helper()
	strat, err := strategy.New(plugintest.System(t, 4), strategy.Options{Replicas: 2, LogicalDevices: 2})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, strat.Close()) })
	f := strat.Function(func(rc *strategy.ReplicaContext, in []*graph.Node) []*graph.Node {
		return []*graph.Node{rc.AllReduce(strategy.Sum, in[0]), graph.AddScalar(in[0], 1)}
	}, strategy.FunctionOptions{Name: "sum"})
	compiled, err := f.Compiled(t.Context(), []float32{1, 2})
	require.NoError(t, err)
	return strat, mustSave(t, compiled)
}

func TestAHeaderThatDoesNotFitItsProgramIsRefused(t *testing.T) {
	strat, file := savedSum(t)
	_, err := stepfile.Load(t.Context(), strat, bytes.NewReader(file), nil)
	require.NoError(t, err)
	var h struct {
		Results []json.RawMessage `json:"results"`
	}
	at := bytes.Index(file, []byte(`"results":`))
	require.NoError(t, json.NewDecoder(bytes.NewReader(append([]byte("{"), file[at:]...))).Decode(&h))
	require.Len(t, h.Results, 2)
	tried := 0
	for _, result := range h.Results {
		old := string(result)
		for what, edit := range map[string][2]string{
			"a negative shape":          {`"local":[2],"global":[`, `"local":[-2],"global":[`},
			"negative shapes":           {`[2]`, `[-2]`},
			"another rank":              {`"local":[2]`, `"local":[1,2]`},
			"a larger shape":            {`"local":[2]`, `"local":[2000]`},
			"a shape beyond memory":     {`"local":[2]`, `"local":[4611686018427387904,4611686018427387904]`},
			"another dtype":             {`Float32`, `Float64`},
			"a dtype of the same size":  {`Float32`, `Int32`},
			"no dtype":                  {`Float32`, `InvalidDType`},
			"a variable":                {`"name":`, `"variable":true,"name":`},
			"of each step":              {`"annotation"`, `"per_step":true,"annotation"`},
			"a layout of others":        {`"kind":"none"`, `"kind":"assign","device":99`},
			"a split that does not fit": {`"kind":"none"`, `"kind":"split","parts":[7]`},
			"a negative device":         {`"kind":"none"`, `"kind":"assign","device":-1`},
			"of each replica":           {`"annotation"`, `"per_replica":true,"annotation"`},
			"of all replicas":           {`"per_replica":true,`, ``},
		} {
			changed := string(bytes.Replace([]byte(old), []byte(edit[0]), []byte(edit[1]), 1))
			if changed == old || what == "of each replica" && bytes.Contains([]byte(old), []byte("per_replica")) {
				continue
			}
			tried++
			f, err := stepfile.Load(t.Context(), strat, bytes.NewReader(stepfile.Rewrite(t, file, old, changed)), nil)
			if err == nil {
				_, err = f.Run(t.Context(), []float32{1, 2})
			}
			var refused *stepfile.Error
			if assert.ErrorAs(t, err, &refused, "%s: %s", what, changed) {
				assert.Equal(t, stepfile.Damaged, refused.Reason, "%s: %v", what, err)
			}
		}
	}
	require.Greater(t, tried, 15)
}

func TestATrainingStepHasALossOfAllReplicas(t *testing.T) {
	file, store, _ := savedStep(t, plugintest.System(t, 4))
	strat := strategytest.On(t, plugintest.System(t, 4), strategytest.AnnotatedOptions())
	at := bytes.Index(file, []byte(`"results":[{`))
	loss := string(file[at : at+bytes.IndexByte(file[at:], '}')])
	changed := bytes.Replace([]byte(loss), []byte(`"annotation"`), []byte(`"per_replica":true,"annotation"`), 1)
	_, err := stepfile.LoadTrain(t.Context(), strat, bytes.NewReader(stepfile.Rewrite(t, file, loss, string(changed))),
		store)
	var refused *stepfile.Error
	require.ErrorAs(t, err, &refused)
	require.Equal(t, stepfile.Damaged, refused.Reason)
}
