package system_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	clusterresolver "github.com/tpustrategy/tpustrategy/cluster_resolver"
	"github.com/tpustrategy/tpustrategy/internal/test/plugintest"
	"github.com/tpustrategy/tpustrategy/tpu/simhost"
	"github.com/tpustrategy/tpustrategy/tpu/system"
)

func TestHangingClientReportsMissingHosts(t *testing.T) {
	plugin := compilePlugin(t, "-DHANG_CLIENT", `-DTEXT="-"`)
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
		Plugin: plugin, Getenv: emptyGetenv, Cluster: workerCluster(t, 0, absent, present.Addr().String(), absent,
			present.Addr().String()),
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

func TestMissingSimulatedHostIsReportedWithAddress(t *testing.T) {
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
			continue // this host does not start
		}
		wg.Go(func() {
			ctx, cancel := context.WithTimeout(context.Background(), limit)
			defer cancel()
			_, errs[i] = system.Open(ctx, system.Options{
				CPUDevices: 8, Connect: cluster.Connect(i), Getenv: emptyGetenv,
				Resolver: clusterresolver.Simple{Cluster: *workerCluster(t, i, addresses...)},
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

func TestEachStepIsLogged(t *testing.T) {
	base, err := system.Open(context.Background(), system.Options{CPUDevices: 8, Plugin: plugintest.Path(t, "cpu")})
	require.NoError(t, err)
	defer base.Close()
	cluster, err := simhost.New(base, simhost.Options{Processes: 2})
	require.NoError(t, err)
	var logs [2]bytes.Buffer
	var wg sync.WaitGroup
	for i := range 2 {
		wg.Go(func() {
			known := workerCluster(t, i, "a:1", "b:1")
			known.NumAccelerators = 4
			sys, err := system.Open(context.Background(), system.Options{
				Connect: cluster.Connect(i), Getenv: emptyGetenv, Cluster: known, Logger: slog.New(slog.NewTextHandler(&logs[i],
					nil)),
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
		for _, step := range []string{system.StepResolve, system.StepEnvironment, system.StepClient, system.StepTopology,
			system.StepDevices} {
			next := strings.Index(logs[i].String()[at:], "system: "+step)
			require.GreaterOrEqual(t, next, 0, "%s in order in\n%s", step, &logs[i])
			at += next
		}
		assert.Contains(t, logs[i].String(), fmt.Sprintf("process=%d processes=2 devices=8", i))
	}
	_, ok := base.Cluster()
	assert.False(t, ok)
}

// slowRuntime is a runtime that is opened after the deadline, and reports its Close.
type slowRuntime struct {
	system.Runtime
	closed chan struct{}
}

func (s slowRuntime) Close() error {
	close(s.closed)
	return nil
}

func TestDevicesOpenedAfterDeadlineAreClosed(t *testing.T) {
	base, err := system.Open(context.Background(), system.Options{CPUDevices: 2, Plugin: plugintest.Path(t, "cpu")})
	require.NoError(t, err)
	defer base.Close()
	closed, left := make(chan struct{}), make(chan struct{})
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
	defer cancel()
	_, err = system.Open(ctx, system.Options{CPUDevices: 2, Connect: func(context.Context) (system.Runtime, error) {
		<-left
		return slowRuntime{base.Runtime(), closed}, nil
	}})
	close(left)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	select {
	case <-closed:
	case <-time.After(10 * time.Second):
		t.Fatal("the devices that were opened after the deadline are not closed")
	}
}
