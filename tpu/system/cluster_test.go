package system_test

import (
	"bytes"
	"context"
	"log/slog"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	clusterresolver "github.com/tpustrategy/tpustrategy/cluster_resolver"
	"github.com/tpustrategy/tpustrategy/internal/test/plugintest"
	"github.com/tpustrategy/tpustrategy/tpu/system"
)

func TestInferredNumberOfDevicesOnlyWarns(t *testing.T) {
	// The runtime creates one device per core, or the table of accelerators is outdated.
	for _, accelerator := range []string{"v4-8", "v5litepod-4"} {
		known, err := clusterresolver.GKE{Getenv: getenvFrom(map[string]string{
			"TPU_WORKER_HOSTNAMES": "localhost", "TPU_ACCELERATOR_TYPE": accelerator,
			"TPU_CHIPS_PER_HOST_BOUNDS": "2,2,1"})}.Resolve(t.Context())
		require.NoError(t, err)
		assert.Equal(t, 4, known.NumAccelerators)
		var log bytes.Buffer
		sys, err := system.Open(t.Context(), system.Options{CPUDevices: 8, Plugin: plugintest.Path(t, "cpu"), Cluster: &known,
			Getenv: emptyGetenv,
			Logger: slog.New(slog.NewTextHandler(&log, nil))})
		require.NoError(t, err)
		assert.Contains(t, log.String(), "devices=8 expected=4 accelerator_type="+accelerator)
		require.NoError(t, sys.Close())
	}
	// A real v4-8 has one device per chip, as the resolver expects.
	known, err := clusterresolver.GKE{Getenv: getenvFrom(map[string]string{
		"TPU_WORKER_HOSTNAMES": "localhost", "TPU_ACCELERATOR_TYPE": "v4-8", "TPU_CHIPS_PER_HOST_BOUNDS": "2,2,1"})}.Resolve(
		t.Context())
	require.NoError(t, err)
	var log bytes.Buffer
	sys, err := system.Open(t.Context(), system.Options{CPUDevices: 4, MeshShape: []int{2, 2, 1, 1},
		Plugin: plugintest.Path(t, "cpu"), Cluster: &known,
		Getenv: emptyGetenv, Logger: slog.New(slog.NewTextHandler(&log, nil))})
	require.NoError(t, err)
	assert.NotContains(t, log.String(), "level=WARN")
	require.NoError(t, sys.Close())
}

func TestAllowFindings(t *testing.T) {
	var log bytes.Buffer
	known := workerCluster(t, 0, "a:1")
	known.Findings = []clusterresolver.Finding{{Code: "other", Fix: "look at the resolver"}}
	sys, err := system.Open(context.Background(), system.Options{
		CPUDevices: 2, Plugin: plugintest.Path(t, "cpu"), Cluster: known, AllowFindings: true,
		Logger: slog.New(slog.NewTextHandler(&log, nil)),
		Getenv: getenvFrom(map[string]string{"TPU_HOST_BOUNDS": "1,1,4", "TPU_WORKER_HOSTNAMES": "a,b",
			"TPU_WORKER_ID": "0"}),
	})
	require.NoError(t, err)
	assert.Contains(t, log.String(), "look at the resolver")
	assert.Contains(t, log.String(), string(clusterresolver.FindingWorkerCount))
	require.NoError(t, sys.Close())
}
