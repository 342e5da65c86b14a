package system_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	clusterresolver "github.com/tpustrategy/tpustrategy/cluster_resolver"
	"github.com/tpustrategy/tpustrategy/internal/plugintest"
	"github.com/tpustrategy/tpustrategy/internal/simhost"
	"github.com/tpustrategy/tpustrategy/pjrt"
	"github.com/tpustrategy/tpustrategy/tpu/system"
)

func empty(string) string { return "" }

func environment(pairs map[string]string) func(string) string {
	return func(name string) string { return pairs[name] }
}

// workers is a cluster of workers at addresses; this process is task id.
func workers(t testing.TB, id int, addresses ...string) *clusterresolver.Cluster {
	t.Helper()
	spec, err := clusterresolver.NewClusterSpec(map[string][]string{"worker": addresses})
	require.NoError(t, err)
	return &clusterresolver.Cluster{Source: "test", Spec: spec, Task: clusterresolver.Task{Type: "worker", ID: id}}
}

// failing is a resolver that fails.
type failing struct{ err error }

func (failing) Name() string { return "failing" }

func (f failing) Resolve(ctx context.Context) (clusterresolver.Cluster, error) {
	if f.err == nil {
		<-ctx.Done()
		return clusterresolver.Cluster{}, ctx.Err()
	}
	return clusterresolver.Cluster{}, f.err
}

// metadata is a client of a server that tells the keys given.
func metadata(t testing.TB, values map[string]string) *clusterresolver.MetadataClient {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Metadata-Flavor", "Google")
		value, ok := values[strings.TrimPrefix(r.URL.Path, "/computeMetadata/v1/")]
		if !ok {
			w.WriteHeader(http.StatusNotFound)
			return
		}
		fmt.Fprint(w, value)
	}))
	t.Cleanup(server.Close)
	return clusterresolver.NewMetadataClient(clusterresolver.MetadataOptions{Transport: &http.Transport{
		DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, network, server.Listener.Addr().String())
		},
	}})
}

// pluginInC compiles a plugin whose entry points are what the macros say.
func pluginInC(t testing.TB, define ...string) string {
	t.Helper()
	dir := t.TempDir()
	c, so := filepath.Join(dir, "plugin.c"), filepath.Join(dir, "plugin.so")
	require.NoError(t, os.WriteFile(c, []byte(`
#include <stddef.h>
#include <string.h>
#include <unistd.h>
struct api { size_t size; void *ext; size_t vsize; void *vext; int major, minor; void *slots[120]; };
static struct api table = { .size = 40 + 8 * 120, .vsize = 24, .minor = 81 };
struct message { size_t size; void *ext; void *error; const char *text; size_t n; };
static int error;
static void destroy(void *a) {}
static void message(struct message *m) { m->text = TEXT; m->n = strlen(m->text); }
static void *code(void *a) { ((int *)a)[6] = 14; return NULL; }
static void *initialize(void *a) {
#ifdef HANG_INITIALIZE
  sleep(3);
#endif
#ifdef FAIL_INITIALIZE
  return &error;
#endif
  return NULL;
}
static void *client(void *a) {
#ifdef HANG_CLIENT
  sleep(8); /* longer than any test's deadline */
#endif
  return &error;
}
void *GetPjrtApi(void) {
  table.slots[0] = destroy; table.slots[1] = message; table.slots[2] = code; table.slots[3] = initialize; table.slots[10] = client;
  return &table;
}`), 0o644))
	out, err := exec.Command("cc", append([]string{"-shared", "-fPIC", "-o", so, c}, define...)...).CombinedOutput()
	require.NoError(t, err, string(out))
	return so
}

func TestEachFailureOfAStartUpNamesItsStep(t *testing.T) {
	cpu := plugintest.Path(t, "cpu")
	wrongCount := environment(map[string]string{"TPU_HOST_BOUNDS": "1,1,4", "TPU_WORKER_HOSTNAMES": "a,b", "TPU_WORKER_ID": "0"})
	stale := environment(map[string]string{
		"MEGASCALE_COORDINATOR_ADDRESS": "10.9.0.7", "MEGASCALE_NUM_SLICES": "2", "MEGASCALE_SLICE_ID": "1"})
	tpuEnv := map[string]string{
		"instance/attributes/accelerator-type": "v4-8",
		"instance/attributes/tpu-env": "ACCELERATOR_TYPE: 'v4-8'\nWORKER_ID: '0'\nMEGASCALE_COORDINATOR_ADDRESS: '10.9.0.1'\n" +
			"MEGASCALE_NUM_SLICES: '2'\nMEGASCALE_SLICE_ID: '1'\n",
	}
	three := workers(t, 0, "10.0.0.1:1", "10.0.0.2:1", "10.0.0.3:1")
	four := workers(t, 0, "10.0.0.1:1", "10.0.0.2:1", "10.0.0.3:1", "10.0.0.4:1")
	chips := workers(t, 0, "localhost:1")
	chips.NumAccelerators = 4
	seen := workers(t, 0, "localhost:1")
	seen.TPU.VisibleChips, seen.TPU.ChipsPerProcess = []int{0, 1, 2}, clusterresolver.Bounds{2, 2, 1}
	for name, c := range map[string]struct {
		opts  system.Options
		limit time.Duration
		step  string
		words []string
		check func(t *testing.T, err error)
	}{
		"resolver fails": {opts: system.Options{Resolver: failing{errors.New("no such project")}}, step: system.StepResolve,
			words: []string{"resolver failing: no such project"}},
		"resolver hangs": {opts: system.Options{Resolver: failing{}}, limit: 50 * time.Millisecond, step: system.StepResolve,
			check: func(t *testing.T, err error) { assert.ErrorIs(t, err, context.DeadlineExceeded) }},
		"two clusters": {opts: system.Options{Resolver: failing{}, Cluster: three}, step: system.StepResolve, words: []string{"give one"}},
		"wrong worker count": {opts: system.Options{Cluster: three, Getenv: wrongCount}, step: system.StepEnvironment,
			check: func(t *testing.T, err error) {
				var check *clusterresolver.CheckError
				require.ErrorAs(t, err, &check)
				assert.True(t, check.Has(clusterresolver.FindingWorkerCount))
			}},
		"stale multislice variables": {opts: system.Options{Cluster: three, Getenv: stale, Metadata: metadata(t, tpuEnv)}, step: system.StepEnvironment,
			check: func(t *testing.T, err error) {
				var check *clusterresolver.CheckError
				require.ErrorAs(t, err, &check)
				assert.True(t, check.Has(clusterresolver.FindingMegascaleStale), "%v", check)
			}},
		"malformed variables": {opts: system.Options{Cluster: three, Getenv: environment(map[string]string{"TPU_WORKER_ID": "first"})},
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
		"plugin hangs as it is opened": {opts: system.Options{Plugin: pluginInC(t, "-DHANG_INITIALIZE", `-DTEXT="-"`)}, limit: 2 * time.Second,
			step: system.StepOpen, words: []string{"the step took"},
			check: func(t *testing.T, err error) { assert.ErrorIs(t, err, context.DeadlineExceeded) }},
		"plugin fails": {opts: system.Options{Plugin: pluginInC(t, `-DTEXT="no such device today"`)}, step: system.StepClient,
			words: []string{"no such device today"},
			check: func(t *testing.T, err error) { assert.ErrorIs(t, err, pjrt.Unavailable) }},
		"TPU in use": {opts: system.Options{Plugin: pluginInC(t, `-DTEXT="The TPU is already in use by process with pid 7"`)}, step: system.StepClient,
			words: []string{"the TPU is in use", "by no process that this user may see"},
			check: func(t *testing.T, err error) {
				var locked *system.LockedError
				assert.ErrorAs(t, err, &locked)
				assert.ErrorIs(t, err, pjrt.Unavailable, "libtpu's own error is kept")
			}},
		"TPU locked": {opts: system.Options{Plugin: pluginInC(t, "-DFAIL_INITIALIZE", `-DTEXT="cannot access libtpu multi-process lockfile"`)}, step: system.StepOpen,
			check: func(t *testing.T, err error) {
				var locked *system.LockedError
				assert.ErrorAs(t, err, &locked)
			}},
		"fewer processes than the cluster has": {opts: system.Options{CPUDevices: 8, Plugin: cpu, Cluster: four, Getenv: empty}, step: system.StepDevices,
			words: []string{"1 processes, but the cluster of test says 4"},
			check: func(t *testing.T, err error) {
				var count *system.CountError
				require.ErrorAs(t, err, &count)
				assert.Equal(t, []int{1, 4}, []int{count.Seen, count.Want})
			}},
		"other devices than the cluster has": {opts: system.Options{CPUDevices: 3, Plugin: cpu, Cluster: chips, Getenv: empty}, step: system.StepDevices,
			words: []string{"3 devices of this process, but the cluster of test says 4"}},
		"fewer chips than the process was told": {opts: system.Options{CPUDevices: 8, Plugin: cpu, Cluster: seen, Getenv: empty}, step: system.StepDevices,
			words: []string{"4 chips of this process, but the cluster of test says 3"}},
		"a mesh that does not fit": {opts: system.Options{CPUDevices: 8, Plugin: cpu, MeshShape: []int{3, 1, 1, 1}}, step: system.StepTopology},
		"devices without coordinates": {opts: system.Options{Plugin: cpu}, step: system.StepTopology,
			words: []string{"no coords attribute"}},
		"devices that never open": {opts: system.Options{Connect: func(context.Context) (system.Runtime, error) { select {} }}, limit: 2 * time.Second,
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
			assert.Contains(t, log.String(), `level=ERROR msg="system: `+c.step+`"`)
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

func TestAHangingClientNamesTheHostsThatDoNotAnswer(t *testing.T) {
	plugin := pluginInC(t, "-DHANG_CLIENT", `-DTEXT="-"`)
	present, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer present.Close()
	gone, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	absent := gone.Addr().String()
	require.NoError(t, gone.Close())
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
	defer cancel()
	start := time.Now()
	_, err = system.Open(ctx, system.Options{
		Plugin: plugin, Getenv: empty, Cluster: workers(t, 0, absent, present.Addr().String(), absent, present.Addr().String()),
	})
	assert.Less(t, time.Since(start), 20*time.Second)
	var failed *system.StartError
	require.ErrorAs(t, err, &failed)
	assert.Equal(t, system.StepClient, failed.Step)
	require.Len(t, failed.Missing, 1, "%v", err)
	assert.Equal(t, clusterresolver.Task{Type: "worker", ID: 2}, failed.Missing[0].Task)
	assert.ErrorContains(t, err, "missing: /job:worker/task:2 ("+absent+"): ")
	assert.ErrorContains(t, err, "on every host")
	assert.ErrorIs(t, err, context.DeadlineExceeded)
}

func TestInferredDevicesAreNoReasonToRefuseThoseThatAreThere(t *testing.T) {
	// A v4-8 whose cores are not joined, or a table that is behind the world.
	for _, accelerator := range []string{"v4-8", "v5litepod-4"} {
		known, err := clusterresolver.GKE{Getenv: environment(map[string]string{
			"TPU_WORKER_HOSTNAMES": "localhost", "TPU_ACCELERATOR_TYPE": accelerator, "TPU_CHIPS_PER_HOST_BOUNDS": "2,2,1"})}.Resolve(t.Context())
		require.NoError(t, err)
		assert.Equal(t, 4, known.NumAccelerators)
		var log bytes.Buffer
		sys, err := system.Open(t.Context(), system.Options{CPUDevices: 8, Plugin: plugintest.Path(t, "cpu"), Cluster: &known, Getenv: empty,
			Logger: slog.New(slog.NewTextHandler(&log, nil))})
		require.NoError(t, err)
		assert.Contains(t, log.String(), "devices=8 expected=4 accelerator_type="+accelerator)
		require.NoError(t, sys.Close())
	}
	// A real v4-8: one device a chip, as the resolver expects.
	known, err := clusterresolver.GKE{Getenv: environment(map[string]string{
		"TPU_WORKER_HOSTNAMES": "localhost", "TPU_ACCELERATOR_TYPE": "v4-8", "TPU_CHIPS_PER_HOST_BOUNDS": "2,2,1"})}.Resolve(t.Context())
	require.NoError(t, err)
	var log bytes.Buffer
	sys, err := system.Open(t.Context(), system.Options{CPUDevices: 4, MeshShape: []int{2, 2, 1, 1}, Plugin: plugintest.Path(t, "cpu"), Cluster: &known,
		Getenv: empty, Logger: slog.New(slog.NewTextHandler(&log, nil))})
	require.NoError(t, err)
	assert.NotContains(t, log.String(), "level=WARN")
	require.NoError(t, sys.Close())
}

func TestAMissingSimulatedHostIsNamedWithItsAddress(t *testing.T) {
	base, err := system.Open(context.Background(), system.Options{CPUDevices: 8, Plugin: plugintest.Path(t, "cpu")})
	require.NoError(t, err)
	defer base.Close()
	cluster, err := simhost.New(base, simhost.Options{Processes: 4})
	require.NoError(t, err)
	addresses := []string{"host-a:8476", "host-b:8476", "host-c:8476", "host-d:8476"}
	const limit = 2 * time.Second
	errs := make([]error, 4)
	var wg sync.WaitGroup
	start := time.Now()
	for i := range 4 {
		if i == 2 {
			continue // the machine did not come up
		}
		wg.Go(func() {
			ctx, cancel := context.WithTimeout(context.Background(), limit)
			defer cancel()
			_, errs[i] = system.Open(ctx, system.Options{
				CPUDevices: 8, Connect: cluster.Connect(i), Getenv: empty, Resolver: clusterresolver.Simple{Cluster: *workers(t, i, addresses...)},
			})
		})
	}
	wg.Wait()
	took := time.Since(start)
	assert.GreaterOrEqual(t, took, limit)
	assert.Less(t, took, limit+20*time.Second, "at the deadline")
	for i, err := range errs {
		if i == 2 {
			continue
		}
		var failed *system.StartError
		require.ErrorAs(t, err, &failed)
		require.Len(t, failed.Missing, 1)
		assert.Equal(t, "host-c:8476", failed.Missing[0].Address)
		assert.ErrorContains(t, err, "missing: /job:worker/task:2 (host-c:8476)")
	}
}

func TestAStartUpIsLoggedStepByStep(t *testing.T) {
	base, err := system.Open(context.Background(), system.Options{CPUDevices: 8, Plugin: plugintest.Path(t, "cpu")})
	require.NoError(t, err)
	defer base.Close()
	cluster, err := simhost.New(base, simhost.Options{Processes: 2})
	require.NoError(t, err)
	var logs [2]bytes.Buffer
	var wg sync.WaitGroup
	for i := range 2 {
		wg.Go(func() {
			known := workers(t, i, "a:1", "b:1")
			known.NumAccelerators = 4
			sys, err := system.Open(context.Background(), system.Options{
				Connect: cluster.Connect(i), Getenv: empty, Cluster: known, Logger: slog.New(slog.NewTextHandler(&logs[i], nil)),
			})
			if !assert.NoError(t, err) {
				return
			}
			assert.Equal(t, i, sys.Process())
			got, ok := sys.Cluster()
			assert.True(t, ok)
			assert.Equal(t, 2, got.Spec.Len())
			assert.NoError(t, sys.Shutdown(context.Background()))
		})
	}
	wg.Wait()
	for i := range logs {
		at := 0
		for _, step := range []string{system.StepResolve, system.StepEnvironment, system.StepClient, system.StepTopology, system.StepDevices} {
			next := strings.Index(logs[i].String()[at:], "system: "+step)
			require.GreaterOrEqual(t, next, 0, "%s in order in\n%s", step, &logs[i])
			at += next
		}
		assert.Contains(t, logs[i].String(), fmt.Sprintf("process=%d processes=2 devices=8", i))
	}
	_, ok := base.Cluster()
	assert.False(t, ok)
}

// stuck is a runtime whose Close never returns.
type stuck struct{ system.Runtime }

func (stuck) Close() error { select {} }

func TestShutdownIsBoundedByItsContext(t *testing.T) {
	base, err := system.Open(context.Background(), system.Options{CPUDevices: 2, Plugin: plugintest.Path(t, "cpu")})
	require.NoError(t, err)
	sys, err := system.New(stuck{base.Runtime()}, base.Topology())
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
	defer cancel()
	assert.ErrorIs(t, sys.Shutdown(ctx), context.DeadlineExceeded)
	require.NoError(t, base.Shutdown(context.Background()))
	require.NoError(t, base.Close(), "a second close returns the first result")
}

func TestASystemInUseSaysWhatToCloseFirst(t *testing.T) {
	sys, err := system.Open(context.Background(), system.Options{CPUDevices: 1, Plugin: plugintest.Path(t, "cpu")})
	require.NoError(t, err)
	rt := sys.Runtime()
	buffer, err := rt.BufferFromHost(context.Background(), make([]byte, 4), pjrt.F32, nil, rt.Devices()[0])
	require.NoError(t, err)
	err = sys.Close()
	var open *pjrt.OpenError
	require.ErrorAs(t, err, &open)
	assert.Equal(t, 1, open.Buffers)
	assert.ErrorContains(t, err, "close the strategies on it first")
	require.NoError(t, buffer.Close())
	require.NoError(t, sys.Close())
}

func TestMoreCPUDevicesThanAMachineHoldsAreNotAskedFor(t *testing.T) {
	_, err := system.Open(t.Context(), system.Options{CPUDevices: 1 << 40})
	assert.ErrorContains(t, err, "more than 16384")
}

func TestFindingsCanBeAllowed(t *testing.T) {
	var log bytes.Buffer
	known := workers(t, 0, "a:1")
	known.Findings = []clusterresolver.Finding{{Code: "other", Do: "look at the resolver"}}
	sys, err := system.Open(context.Background(), system.Options{
		CPUDevices: 2, Plugin: plugintest.Path(t, "cpu"), Cluster: known, AllowFindings: true, Logger: slog.New(slog.NewTextHandler(&log, nil)),
		Getenv: environment(map[string]string{"TPU_HOST_BOUNDS": "1,1,4", "TPU_WORKER_HOSTNAMES": "a,b", "TPU_WORKER_ID": "0"}),
	})
	require.NoError(t, err)
	assert.Contains(t, log.String(), "look at the resolver")
	assert.Contains(t, log.String(), string(clusterresolver.FindingWorkerCount))
	require.NoError(t, sys.Close())
}

func TestATopologyHasOneTaskForThisProcess(t *testing.T) {
	base, err := system.Open(context.Background(), system.Options{CPUDevices: 8, Plugin: plugintest.Path(t, "cpu")})
	require.NoError(t, err)
	defer base.Close()
	cluster, err := simhost.New(base, simhost.Options{Processes: 2})
	require.NoError(t, err)
	_, err = system.New(base.Runtime(), cluster.Topology())
	assert.ErrorContains(t, err, "a process addresses the devices of one task")
}

// slow is a runtime that comes late, and tells when it is closed.
type slow struct {
	system.Runtime
	closed chan struct{}
}

func (s slow) Close() error {
	close(s.closed)
	return nil
}

func TestDevicesThatComeTooLateAreClosed(t *testing.T) {
	base, err := system.Open(context.Background(), system.Options{CPUDevices: 2, Plugin: plugintest.Path(t, "cpu")})
	require.NoError(t, err)
	defer base.Close()
	closed := make(chan struct{})
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
	defer cancel()
	_, err = system.Open(ctx, system.Options{CPUDevices: 2, Connect: func(context.Context) (system.Runtime, error) {
		time.Sleep(400 * time.Millisecond)
		return slow{base.Runtime(), closed}, nil
	}})
	require.ErrorIs(t, err, context.DeadlineExceeded)
	select {
	case <-closed:
	case <-time.After(10 * time.Second):
		t.Fatal("the devices that came late stay open")
	}
}
