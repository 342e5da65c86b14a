package system_test

import (
	"context"
	"errors"
	"net"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	clusterresolver "github.com/tpustrategy/tpustrategy/cluster_resolver"
	"github.com/tpustrategy/tpustrategy/tpu/system"
)

// fakeNetwork accepts connections at some addresses and refuses all others.
type fakeNetwork struct {
	mu     sync.Mutex
	listen []string
	silent []string // hosts whose names do not resolve
	asked  []string
}

func (n *fakeNetwork) dial(_ context.Context, _, address string) (net.Conn, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.asked = append(n.asked, address)
	host, _, err := net.SplitHostPort(address)
	switch {
	case err != nil:
		return nil, err
	case slices.Contains(n.listen, address):
		here, there := net.Pipe()
		return here, there.Close()
	case slices.Contains(n.silent, host):
		return nil, &net.OpError{Op: "dial", Err: &net.DNSError{Err: "no such host", Name: host, IsNotFound: true}}
	}
	return nil, &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}
}

func TestHangingStartProbesRuntimeAddresses(t *testing.T) {
	plugin := compilePlugin(t, "-DHANG_CLIENT", `-DTEXT="-"`)
	hosts := []string{"a:8470", "b:8470", "c:8470", "d:8470"} // addresses that a resolver builds from host names
	for name, c := range map[string]struct {
		env     map[string]string
		workers []string
		network *fakeNetwork
		asked   []string
		missing []int
		words   []string
	}{
		"one of them is not there": {nil, hosts, &fakeNetwork{listen: []string{"b:8471", "d:8471"}},
			[]string{"b:8471", "c:8471", "d:8471"},
			[]int{2}, []string{"missing: /job:worker/task:2 (c:8471): "}},
		"all are there": {nil, hosts, &fakeNetwork{listen: []string{"b:8471", "c:8471", "d:8471"}},
			[]string{"b:8471", "c:8471", "d:8471"},
			nil, []string{"all other hosts accept connections"}},
		"TensorFlow's server is not the runtime": {nil, hosts, &fakeNetwork{listen: []string{"b:8471", "c:8470", "d:8471"}},
			[]string{"b:8471", "c:8471", "d:8471"},
			[]int{2}, nil},
		"every probe is refused": {nil, hosts, &fakeNetwork{}, []string{"b:8471", "c:8471", "d:8471"},
			nil, []string{"cannot determine which hosts are missing: none of the 3 other hosts accepts a connection at the " +
				"address of its TPU runtime, such as /job:worker/task:1 (b:8471): "}},
		"a name that nobody knows": {nil, hosts, &fakeNetwork{silent: []string{"d"}}, []string{"b:8471", "c:8471", "d:8471"},
			[]int{3}, []string{"cannot determine which hosts are missing", "no such host"}},
		"another port": {map[string]string{"TPU_PROCESS_PORT": "8476"}, hosts,
			&fakeNetwork{listen: []string{"b:8476", "c:8476"}}, []string{"b:8476", "c:8476", "d:8476"},
			[]int{3}, nil},
		"addresses of their own": {map[string]string{"TPU_PROCESS_ADDRESSES": "a:1,b:2,c:3,d:4"}, hosts,
			&fakeNetwork{listen: []string{"b:2", "c:3"}}, []string{"b:2", "c:3", "d:4"},
			[]int{3}, []string{"missing: /job:worker/task:3 (d:4): "}},
		"a cluster that names ports": {nil, []string{"a:2222", "b:2222", "c:2222"},
			&fakeNetwork{listen: []string{"b:2222", "c:8471"}}, []string{"b:2222", "c:2222", "c:8471"},
			nil, []string{"all other hosts accept connections"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var err error
			var failed *system.StartError
			// On a busy machine the deadline can expire in an earlier step.
			for _, limit := range []time.Duration{300 * time.Millisecond, 3 * time.Second, 30 * time.Second} {
				c.network.asked = nil
				ctx, cancel := context.WithTimeout(t.Context(), limit)
				_, err = system.Open(ctx, system.Options{Plugin: plugin, Getenv: getenvFrom(c.env), Cluster: workerCluster(t, 0,
					c.workers...), Dial: c.network.dial})
				cancel()
				require.ErrorAs(t, err, &failed)
				if failed.Step == system.StepClient {
					break
				}
			}
			require.Equal(t, system.StepClient, failed.Step)
			slices.Sort(c.network.asked)
			assert.Equal(t, c.asked, c.network.asked)
			var missing []int
			for _, h := range failed.Missing {
				assert.Error(t, h.Err)
				missing = append(missing, h.Task.ID)
			}
			assert.Equal(t, c.missing, missing, "%v", err)
			for _, word := range append(c.words, "on every host of the slice") {
				assert.ErrorContains(t, err, word)
			}
			assert.True(t, errors.Is(err, context.DeadlineExceeded))
		})
	}
	assert.Equal(t, 8471, clusterresolver.RuntimePort)
}
