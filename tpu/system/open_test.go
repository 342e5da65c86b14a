package system_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	clusterresolver "github.com/tpustrategy/tpustrategy/cluster_resolver"
	"github.com/tpustrategy/tpustrategy/internal/test/plugintest"
	"github.com/tpustrategy/tpustrategy/pjrt"
	"github.com/tpustrategy/tpustrategy/tpu/system"
)

// failingResolver is a resolver that returns an error.
type failingResolver struct{ err error }

func (failingResolver) Name() string { return "failing" }

func (f failingResolver) Resolve(ctx context.Context) (clusterresolver.Cluster, error) {
	if f.err == nil {
		<-ctx.Done()
		return clusterresolver.Cluster{}, ctx.Err()
	}
	return clusterresolver.Cluster{}, f.err
}

func TestStartErrorContainsStep(t *testing.T) {
	cpu := plugintest.Path(t, "cpu")
	wrongCount := getenvFrom(map[string]string{"TPU_HOST_BOUNDS": "1,1,4", "TPU_WORKER_HOSTNAMES": "a,b",
		"TPU_WORKER_ID": "0"})
	stale := getenvFrom(map[string]string{
		"MEGASCALE_COORDINATOR_ADDRESS": "10.9.0.7", "MEGASCALE_NUM_SLICES": "2", "MEGASCALE_SLICE_ID": "1"})
	tpuEnv := map[string]string{
		"instance/attributes/accelerator-type": "v4-8",
		"instance/attributes/tpu-env": "ACCELERATOR_TYPE: 'v4-8'\nWORKER_ID: '0'\nMEGASCALE_COORDINATOR_ADDRESS: " +
			"'10.9.0.1'\n" +
			"MEGASCALE_NUM_SLICES: '2'\nMEGASCALE_SLICE_ID: '1'\n",
	}
	three := workerCluster(t, 0, "10.0.0.1:1", "10.0.0.2:1", "10.0.0.3:1")
	four := workerCluster(t, 0, "10.0.0.1:1", "10.0.0.2:1", "10.0.0.3:1", "10.0.0.4:1")
	chips := workerCluster(t, 0, "localhost:1")
	chips.NumAccelerators = 4
	seen := workerCluster(t, 0, "localhost:1")
	seen.TPU.VisibleChips, seen.TPU.ChipsPerProcess = []int{0, 1, 2}, clusterresolver.Bounds{2, 2, 1}
	for name, c := range map[string]struct {
		opts  system.Options
		limit time.Duration
		step  string
		words []string
		check func(t *testing.T, err error)
	}{
		"resolver fails": {opts: system.Options{Resolver: failingResolver{errors.New("no such project")}},
			step:  system.StepResolve,
			words: []string{"resolver failing: no such project"}},
		"resolver hangs": {opts: system.Options{Resolver: failingResolver{}}, limit: 50 * time.Millisecond,
			step:  system.StepResolve,
			check: func(t *testing.T, err error) { assert.ErrorIs(t, err, context.DeadlineExceeded) }},
		"two clusters": {opts: system.Options{Resolver: failingResolver{}, Cluster: three}, step: system.StepResolve,
			words: []string{"set only one of them"}},
		"wrong worker count": {opts: system.Options{Cluster: three, Getenv: wrongCount}, step: system.StepEnvironment,
			check: func(t *testing.T, err error) {
				var check *clusterresolver.CheckError
				require.ErrorAs(t, err, &check)
				assert.True(t, check.Has(clusterresolver.FindingWorkerCount))
			}},
		"stale multislice variables": {opts: system.Options{Cluster: three, Getenv: stale, Metadata: newMetadataClient(t,
			tpuEnv)}, step: system.StepEnvironment,
			check: func(t *testing.T, err error) {
				var check *clusterresolver.CheckError
				require.ErrorAs(t, err, &check)
				assert.True(t, check.Has(clusterresolver.FindingMegascaleStale), "%v", check)
			}},
		"malformed variables": {opts: system.Options{Cluster: three,
			Getenv: getenvFrom(map[string]string{"TPU_WORKER_ID": "first"})},
			step: system.StepEnvironment, words: []string{"TPU_WORKER_ID"}},
		"no plugin": {opts: system.Options{Plugin: "/no/such/plugin.so"}, step: system.StepFind,
			check: func(t *testing.T, err error) {
				var find *pjrt.FindError
				assert.ErrorAs(t, err, &find)
			}},
		"plugin is no plugin": {opts: system.Options{Plugin: os.Args[0]}, step: system.StepOpen,
			check: func(t *testing.T, err error) {
				var plugin *pjrt.PluginError
				assert.ErrorAs(t, err, &plugin)
			}},
		"plugin hangs as it is opened": {opts: system.Options{Plugin: compilePlugin(t, "-DHANG_INITIALIZE", `-DTEXT="-"`)},
			limit: 2 * time.Second,
			step:  system.StepOpen, words: []string{"the step took"},
			check: func(t *testing.T, err error) { assert.ErrorIs(t, err, context.DeadlineExceeded) }},
		"plugin fails": {opts: system.Options{Plugin: compilePlugin(t, `-DTEXT="no such device today"`)},
			step:  system.StepClient,
			words: []string{"no such device today"},
			check: func(t *testing.T, err error) { assert.ErrorIs(t, err, pjrt.Unavailable) }},
		"CPU devices of another plugin": {opts: system.Options{CPUDevices: 2, Plugin: compilePlugin(t,
			`-DTEXT="Unexpected option name: cpu_device_count"`)},
			step: system.StepClient, words: []string{"Unexpected option name", "-devices, to 0"}},
		"TPU in use": {opts: system.Options{BusyTimeout: -1, Plugin: compilePlugin(t,
			`-DTEXT="The TPU is already in use by process with pid 7"`)}, step: system.StepClient,
			words: []string{"the TPU is in use", "by a process that this user cannot see"},
			check: func(t *testing.T, err error) {
				var locked *system.LockedError
				assert.ErrorAs(t, err, &locked)
				assert.ErrorIs(t, err, pjrt.Unavailable, "libtpu's own error is kept")
			}},
		"TPU locked": {opts: system.Options{BusyTimeout: -1, Plugin: compilePlugin(t, "-DFAIL_INITIALIZE",
			`-DTEXT="cannot access libtpu multi-process lockfile"`)}, step: system.StepOpen,
			check: func(t *testing.T, err error) {
				var locked *system.LockedError
				assert.ErrorAs(t, err, &locked)
			}},
		"fewer processes than the cluster has": {opts: system.Options{CPUDevices: 8, Plugin: cpu, Cluster: four,
			Getenv: emptyGetenv}, step: system.StepDevices,
			words: []string{"found 1 processes, but the cluster of test specifies 4"},
			check: func(t *testing.T, err error) {
				require.ErrorIs(t, err, system.ErrCount)
			}},
		"other devices than the cluster has": {opts: system.Options{CPUDevices: 3, Plugin: cpu, Cluster: chips,
			Getenv: emptyGetenv}, step: system.StepDevices,
			words: []string{"found 3 devices of this process, but the cluster of test specifies 4"}},
		"fewer chips than the process was told": {opts: system.Options{CPUDevices: 8, Plugin: cpu, Cluster: seen,
			Getenv: emptyGetenv}, step: system.StepDevices,
			words: []string{"found 4 chips of this process, but the cluster of test specifies 3"}},
		"a mesh that does not fit": {opts: system.Options{CPUDevices: 8, Plugin: cpu, MeshShape: []int{3, 1, 1, 1}},
			step: system.StepTopology},
		"devices without coordinates": {opts: system.Options{Plugin: cpu}, step: system.StepTopology,
			words: []string{"no coords attribute"}},
		"devices that never open": {opts: system.Options{Connect: func(context.Context) (system.Runtime,
			error) {
			select {}
		}}, limit: 2 * time.Second,
			step:  system.StepClient,
			check: func(t *testing.T, err error) { assert.ErrorIs(t, err, context.DeadlineExceeded) }},
	} {
		t.Run(name, func(t *testing.T) {
			limit := c.limit
			if limit == 0 {
				limit = 20 * time.Second
			}
			ctx, cancel := context.WithTimeout(context.Background(), limit)
			defer cancel()
			var log bytes.Buffer
			c.opts.Logger = slog.New(slog.NewTextHandler(&log, nil))
			start := time.Now()
			sys, err := system.Open(ctx, c.opts)
			require.Nil(t, sys)
			var failed *system.StartError
			require.ErrorAs(t, err, &failed)
			assert.Equal(t, c.step, failed.Step, "%v", err)
			assert.ErrorContains(t, err, "system: "+c.step)
			assert.Contains(t, log.String(), `level=INFO msg="system: `+c.step+` failed"`)
			for _, word := range c.words {
				assert.ErrorContains(t, err, word)
			}
			if c.check != nil {
				c.check(t, err)
			}
			if c.limit > 0 {
				assert.Less(t, time.Since(start), c.limit+20*time.Second, "the context bounds it")
			}
		})
	}
}

func TestOpenRejectsTooManyCPUDevices(t *testing.T) {
	_, err := system.Open(t.Context(), system.Options{CPUDevices: 1 << 40})
	assert.ErrorContains(t, err, "more than 16384")
}

// The fake plugin returns another error after three calls, because it cannot create a client.
func TestOpenRetriesBusyTPUWithoutHolder(t *testing.T) {
	plugin := compilePlugin(t, "-DBUSY=3", `-DTEXT="open(/dev/vfio/0): Device or resource busy"`)
	var log bytes.Buffer
	start := time.Now()
	_, err := system.Open(t.Context(), system.Options{Plugin: plugin, Logger: slog.New(slog.NewTextHandler(&log, nil))})
	assert.ErrorContains(t, err, "no longer in the way")
	assert.GreaterOrEqual(t, time.Since(start), 3*time.Second)
	assert.Equal(t, 1, strings.Count(log.String(), "retrying every second"), "one line in ten seconds")

	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	_, err = system.Open(ctx, system.Options{Plugin: compilePlugin(t, "-DBUSY=1000", `-DTEXT="Device or resource busy"`)})
	var locked *system.LockedError
	assert.ErrorAs(t, err, &locked, "the end of the context ends the wait, and says for what it was")
}

// Some hosts provide only a part of the metadata. Open continues if the environment lists all
// processes.
func TestMetadataErrorIsLoggedIfEnvironmentIsComplete(t *testing.T) {
	forbidden := map[string]string{"instance/attributes/accelerator-type": "forbidden"}
	opts := system.Options{CPUDevices: 8, Plugin: plugintest.Path(t, "cpu"), Metadata: newMetadataClient(t, forbidden),
		Cluster: workerCluster(t, 0, "localhost:8471"), Getenv: emptyGetenv}
	_, err := system.Open(t.Context(), opts)
	var answer *clusterresolver.MetadataError
	require.ErrorAs(t, err, &answer)
	var log bytes.Buffer
	opts.Logger = slog.New(slog.NewTextHandler(&log, nil))
	opts.Getenv = getenvFrom(map[string]string{"TPU_PROCESS_ADDRESSES": "local"})
	sys, err := system.Open(t.Context(), opts)
	require.NoError(t, err)
	require.NoError(t, sys.Close())
	assert.Contains(t, log.String(), "level=WARN")
	assert.Contains(t, log.String(), "403")
}
