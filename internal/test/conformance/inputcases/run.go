package inputcases

import (
	"bytes"
	"encoding/json"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/input"
)

// recorded is one recorded run of TensorFlow, with its inputs and outputs.
type recorded struct {
	Section  string          `json:"section"`
	Name     string          `json:"name"`
	Strategy string          `json:"strategy"`
	Inputs   inputs          `json:"inputs"`
	Outputs  json.RawMessage `json:"outputs"`
}

// inputs contains the inputs of cases of input distribution, rebatching and auto-sharding. Absent
// inputs are nil or zero.
type inputs struct {
	Range           *int      `json:"range"`
	GlobalBatch     *int      `json:"global_batch"`
	Batch           *int      `json:"batch"`
	PerReplicaBatch *int      `json:"per_replica_batch"`
	DropRemainder   bool      `json:"drop_remainder"`
	AutoShard       string    `json:"auto_shard"`
	Policy          string    `json:"policy"`
	Elements        [][]int32 `json:"elements"`
	Files           *int      `json:"files"`
	Lines           *int      `json:"lines"`
	NumReplicas     *int      `json:"num_replicas"`
	BatchSizes      []int     `json:"batch_sizes"`
	NumWorkers      *int      `json:"num_workers"`
	ReplicasEach    int       `json:"num_replicas_per_worker"`
	WorkerIndex     int       `json:"worker_index"`
}

// Run runs one recorded case. A case with an unknown input fails.
func Run(t *testing.T, raw json.RawMessage) {
	var c recorded
	d := json.NewDecoder(bytes.NewReader(raw))
	d.DisallowUnknownFields()
	require.NoError(t, d.Decode(&c))
	runGolden(t, c)
}

var policyText = regexp.MustCompile(`\bpolicy ([A-Z]+)\b`)

// policyOf returns the auto-shard policy in the inputs or, if the inputs have none, in the name.
func policyOf(t *testing.T, c recorded) input.AutoShardPolicy {
	text := c.Inputs.Policy + c.Inputs.AutoShard
	if m := policyText.FindStringSubmatch(c.Name); text == "" && m != nil {
		text = m[1]
	}
	return policyNamed(t, text)
}

func policyNamed(t *testing.T, text string) input.AutoShardPolicy {
	p, ok := map[string]input.AutoShardPolicy{"": input.Auto, "OFF": input.Off, "AUTO": input.Auto, "FILE": input.File,
		"DATA": input.Data, "HINT": input.Hint}[text]
	require.True(t, ok, "policy %q", text)
	return p
}

func runGolden(t *testing.T, c recorded) {
	in, cl := c.Inputs, clusterOf(t, c.Strategy)
	opts := input.Options{Policy: policyOf(t, c), PerWorkerOnly: strings.HasPrefix(c.Strategy, "tpu")}
	switch {
	case in.NumReplicas != nil:
		runRebatch(t, c)
	case in.BatchSizes != nil:
		checkPieces(t, c, input.Range(*in.Range).Batch(*in.Batch, in.DropRemainder).RebatchSizes(in.BatchSizes))
	case in.NumWorkers != nil:
		sizes, err := input.BatchSizes(*in.GlobalBatch, *in.NumWorkers*in.ReplicasEach, *in.NumWorkers, in.WorkerIndex)
		require.NoError(t, err)
		text, err := json.Marshal(sizes)
		require.NoError(t, err)
		assert.JSONEq(t, string(c.Outputs), string(text))
	case in.PerReplicaBatch != nil:
		runFromFunction(t, c, cl)
	case in.Files != nil:
		ds := TextFiles(t, *in.Files, *in.Lines, strings.Contains(c.Name, "10*file+line")).Batch(*in.Batch, in.DropRemainder)
		checkSteps(t, c, RunCluster(t, ds, cl, opts, -1))
	case in.Range != nil:
		size := in.GlobalBatch
		if size == nil {
			size = in.Batch
		}
		require.NotNil(t, size, "inputs without a batch size")
		ds := input.Range(*in.Range).Batch(*size, in.DropRemainder)
		checkSteps(t, c, RunCluster(t, ds, cl, opts, -1))
	case in.Elements != nil:
		list := make([]input.Element, len(in.Elements))
		for i, v := range in.Elements {
			list[i] = input.Leaf(input.Vector(v...))
		}
		ds := Ragged(list)
		if strings.Contains(c.Name, "static length") {
			ds = input.FromElements(list...)
			require.ErrorIs(t, RunCluster(t, ds, cl, opts, -1).Err, input.ErrNotBatched, "a feature axis is never split")
			return
		}
		checkSteps(t, c, RunCluster(t, ds, cl, opts, -1))
	default:
		runNamed(t, c, cl, opts)
	}
}
