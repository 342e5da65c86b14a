package input_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/input"
	"github.com/tpustrategy/tpustrategy/internal/test/conformance/inputcases"
)

func TestRulesAndPoliciesThatApply(t *testing.T) {
	files := inputcases.TextFiles(t, 2, 4, false).Batch(4, false)
	memory := input.Range(8).Batch(4, false)
	for name, c := range map[string]struct {
		ds     input.Dataset
		hosts  int
		policy input.AutoShardPolicy
		want   string
	}{
		"memory":          {memory, 1, input.Auto, "Data Chunks"},
		"files":           {files, 1, input.Auto, "File Sizes"},
		"files on 2":      {files, 2, input.Auto, "File Sizes"},
		"memory off":      {memory, 2, input.Off, "Off Sizes"},
		"file on 1 host":  {memory, 1, input.File, "File Sizes"},
		"hint":            {memory, 2, input.Hint, "Hint Sizes"},
		"files as data":   {files, 2, input.Data, "Data Chunks"},
		"files and other": {files.Concatenate(files.Unbatch().Batch(2, false)), 2, input.Auto, "File Chunks"},
		"files, memory":   {files.Concatenate(inputcases.Ragged(nil)), 2, input.Auto, "Data Chunks"},
	} {
		d, err := input.Distribute(c.ds, input.Options{Replicas: 4, Processes: c.hosts, Policy: c.policy})
		require.NoError(t, err, name)
		assert.Equal(t, c.want, fmt.Sprint(d.Policy(), " ", d.Rule()), name)
	}
}

func TestShardHintDividesWhereItStands(t *testing.T) {
	ds := input.Range(8).ShardHint().Cache().Concatenate(input.Range(2)).Batch(2, false)
	got := inputcases.RunCluster(t, ds, inputcases.Cluster{Hosts: 2, Replicas: 2}, input.Options{Policy: input.Hint,
		Rule: input.Chunks}, -1)
	// Each host splits its own batches into two chunks and uses one in each step.
	assert.Equal(t, "[[[0] [1]] [[2] [3]] [[4] [5]] [[6] [7]] [[0] [0]] [[1] [1]]]", stepsOf(t, got))
	assert.ErrorContains(t, inputcases.RunCluster(t, ds, inputcases.Cluster{Hosts: 2, Replicas: 2}, input.Options{},
		-1).Err, "policy Hint")
}

func TestShardHintDividesWithinAZip(t *testing.T) {
	numbers := input.Range(4).ShardHint()
	ds := input.Zip(numbers, numbers).Map(func(_ context.Context, e input.Element) (input.Element, error) {
		return e.At(1),
			nil
	}, input.MapOptions{}).Batch(2, false)
	got := inputcases.RunCluster(t, ds, inputcases.Cluster{Hosts: 2, Replicas: 2}, input.Options{Policy: input.Hint,
		Rule: input.Chunks}, -1)
	require.NoError(t, got.Err)
	assert.Equal(t, "[[[0] [1]] [[2] [3]]]", stepsOf(t, got))
}

// The documentation promises a warning if automatic sharding selects Data.
func TestAutomaticShardingWarnsWhereEveryProcessReadsAll(t *testing.T) {
	for name, c := range map[string]struct {
		opts  input.Options
		warns bool
	}{
		"several hosts": {input.Options{Processes: 2, Replicas: 2}, true},
		"one host":      {input.Options{Processes: 1, Replicas: 2}, false},
		"asked for":     {input.Options{Processes: 2, Replicas: 2, Policy: input.Data}, false},
		"off":           {input.Options{Processes: 2, Replicas: 2, Policy: input.Off}, false},
	} {
		var log bytes.Buffer
		c.opts.Logger = slog.New(slog.NewTextHandler(&log, nil))
		d, err := input.Distribute(input.Range(16).Batch(4, true), c.opts)
		require.NoError(t, err)
		if !c.warns {
			require.Empty(t, log.String(), name)
			continue
		}
		require.Equal(t, input.Data, d.Policy())
		require.Contains(t, log.String(), "level=WARN")
		require.Contains(t, log.String(), "every process runs the whole pipeline")
	}
}
