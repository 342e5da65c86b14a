package system

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"sync"
	"time"

	clusterresolver "github.com/tpustrategy/tpustrategy/cluster_resolver"
)

// probeTimeout is the maximum time to determine the missing processes after a failed start.
const probeTimeout = 2 * time.Second

// probeResult reports which other processes accept connections.
type probeResult struct {
	// missing lists the processes whose host name is unknown. If at least one process accepts
	// connections, it also lists the processes that do not.
	missing []Process
	// numProbed is the number of other processes. inconclusive is true if no process accepts
	// connections, because a firewall may block them; exampleWorker is one of these processes with
	// its error.
	numProbed     int
	inconclusive  bool
	exampleWorker Process
}

// hint returns a text for an error message about a start that failed although all processes accept
// connections.
func (r probeResult) hint() string {
	switch {
	case r.inconclusive:
		return fmt.Sprintf("cannot determine which hosts are missing: none of the %d other hosts accepts a connection "+
			"at the address of its TPU runtime, such as %s", r.numProbed, r.exampleWorker)
	case len(r.missing) == 0:
		return "all other hosts accept connections; check their logs for later errors"
	}
	return ""
}

// probeWorkers tries to connect to the TPU runtimes of the other workers. A runtime accepts
// connections while it waits for the processes of its slice.
func (s *starter) probeWorkers(ctx context.Context) (r probeResult) {
	dial := s.opts.Dial
	if dial == nil {
		dial = new(net.Dialer).DialContext
	}
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	var others []Process
	var addresses [][]string
	runtimeAddresses := s.runtimeAddresses()
	for i, w := range s.workers() {
		if w.Task != s.cluster.Task {
			w.Address = runtimeAddresses[i][0]
			others, addresses = append(others, w), append(addresses, runtimeAddresses[i])
		}
	}
	var wg sync.WaitGroup
	for i := range others {
		wg.Go(func() { others[i].Err = dialAny(ctx, dial, addresses[i]) })
	}
	wg.Wait()
	r.numProbed, r.inconclusive = len(others), true
	for _, h := range others {
		if h.Err == nil {
			r.inconclusive = false
		}
	}
	for _, h := range others {
		var name *net.DNSError
		unknownHost := errors.As(h.Err, &name) && name.IsNotFound
		switch {
		case h.Err == nil:
		case unknownHost || !r.inconclusive:
			r.missing = append(r.missing, h)
		case r.exampleWorker.Err == nil:
			r.exampleWorker = h
		}
	}
	r.inconclusive = r.inconclusive && r.exampleWorker.Err != nil
	return r
}

// dialAny connects to one of the addresses, in order, and closes the connection. If all connections
// fail, it returns the error of the first address.
func dialAny(ctx context.Context, dial func(ctx context.Context, network, address string) (net.Conn, error),
	addresses []string) error {
	var first error
	for _, address := range addresses {
		conn, err := dial(ctx, "tcp", address)
		if err == nil {
			_ = conn.Close()
			return nil
		}
		first = cmp.Or(first, err)
	}
	return first
}

// runtimeAddresses returns, for each worker, the addresses at which its TPU runtime may listen.
// These are the addresses in TPU_PROCESS_ADDRESSES. If the variable is not set, they are the
// worker's host with the port TPU_PROCESS_PORT, by default 8471, and the worker's address in the
// cluster, unless its port is TensorFlow's default port.
func (s *starter) runtimeAddresses() [][]string {
	workers := s.workers()
	out := make([][]string, len(workers))
	env, _ := clusterresolver.ReadEnvironment(getenvOrDefault(s.opts)) // checkEnvironment has returned the error
	for i, w := range workers {
		if len(env.ProcessAddresses) == len(workers) {
			out[i] = []string{env.ProcessAddresses[i]}
			continue
		}
		host, port, err := net.SplitHostPort(w.Address)
		if err != nil {
			host, port = w.Address, ""
		}
		if port != "" && port != strconv.Itoa(clusterresolver.DefaultPort) {
			out[i] = append(out[i], w.Address)
		}
		runtime := net.JoinHostPort(host, strconv.Itoa(cmp.Or(env.ProcessPort, clusterresolver.RuntimePort)))
		if len(out[i]) == 0 || out[i][0] != runtime {
			out[i] = append(out[i], runtime)
		}
	}
	return out
}
