package strategy_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"os"
	"testing"

	"github.com/gomlx/gomlx/core/graph"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/strategy"
)

// savedSum is a saved step of 2 replicas on 2 logical devices, with a mirrored result
// and one of each replica, and its strategy.
func savedSum(t *testing.T) (*strategy.TPUStrategy, []byte) {
	t.Helper()
	strat, err := strategy.New(openCPU(t, 4), strategy.Options{Replicas: 2, LogicalDevices: 2})
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
	_, err := strat.LoadStep(t.Context(), bytes.NewReader(file), nil)
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
			f, err := strat.LoadStep(t.Context(), bytes.NewReader(strategy.RewriteStep(t, file, old, changed)), nil)
			if err == nil {
				_, err = f.Run(t.Context(), []float32{1, 2})
			}
			var refused *strategy.StepFileError
			if assert.ErrorAs(t, err, &refused, "%s: %s", what, changed) {
				assert.Equal(t, strategy.StepDamaged, refused.Reason, "%s: %v", what, err)
			}
		}
	}
	require.Greater(t, tried, 15)
}

func TestATrainingStepHasALossOfAllReplicas(t *testing.T) {
	file, store, _ := savedStep(t, openCPU(t, 4))
	strat, err := strategy.New(openCPU(t, 4), annotatedOptions())
	require.NoError(t, err)
	defer strat.Close()
	at := bytes.Index(file, []byte(`"results":[{`))
	loss := string(file[at : at+bytes.IndexByte(file[at:], '}')])
	changed := bytes.Replace([]byte(loss), []byte(`"annotation"`), []byte(`"per_replica":true,"annotation"`), 1)
	_, err = strat.LoadTrainStep(t.Context(), bytes.NewReader(strategy.RewriteStep(t, file, loss, string(changed))), store)
	var refused *strategy.StepFileError
	require.ErrorAs(t, err, &refused)
	require.Equal(t, strategy.StepDamaged, refused.Reason)
}

func TestAStepFileIsReadWithinBounds(t *testing.T) {
	strat, file := savedSum(t)
	zero, err := os.Open("/dev/zero")
	require.NoError(t, err)
	defer zero.Close()
	var refused *strategy.StepFileError
	_, err = strat.LoadStep(t.Context(), zero, nil)
	require.ErrorAs(t, err, &refused)
	assert.Equal(t, strategy.StepNotAFile, refused.Reason)
	// A file that goes on for ever after its end, and parts of impossible sizes.
	_, err = strat.LoadStep(t.Context(), endless{bytes.NewReader(file)}, nil)
	require.ErrorAs(t, err, &refused)
	assert.Equal(t, strategy.StepDamaged, refused.Reason)
	huge := append(append([]byte{}, file[:17]...), 0, 0, 0, 0, 0, 0, 0, 1)
	_, err = strat.LoadStep(t.Context(), endless{bytes.NewReader(huge)}, nil)
	require.ErrorAs(t, err, &refused)
	assert.Equal(t, strategy.StepDamaged, refused.Reason)

	sum := sha256.Sum256(file)
	_, err = strat.LoadStep(t.Context(), bytes.NewReader(file), nil, strategy.LoadOptions{SHA256: hex.EncodeToString(sum[:])})
	require.NoError(t, err)
	sum[3] ^= 1
	_, err = strat.LoadStep(t.Context(), bytes.NewReader(file), nil, strategy.LoadOptions{SHA256: hex.EncodeToString(sum[:])})
	require.ErrorAs(t, err, &refused)
	assert.Equal(t, strategy.StepHash, refused.Reason)
}

// endless goes on with zeros.
type endless struct{ r *bytes.Reader }

func (e endless) Read(p []byte) (int, error) {
	if n, _ := e.r.Read(p); n > 0 {
		return n, nil
	}
	clear(p)
	return len(p), nil
}
