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

// probeTimeout bounds the question which processes are missing, once a start-up has failed.
const probeTimeout = 2 * time.Second

// reach is what came of asking the other processes.
type reach struct {
	// missing are those that are known to be: their names are not known, or they take no connection
	// where others do.
	missing []Process
	// asked is their number; unknown says that none took a connection, so that nothing follows from
	// it, and sample is what one of them said.
	asked   int
	unknown bool
	sample  Process
}

// hint says in words what is not named.
func (r reach) hint() string {
	switch {
	case r.unknown:
		return fmt.Sprintf("which hosts are missing is unknown: none of the %d others takes a connection where its TPU runtime would listen, such as %s",
			r.asked, r.sample)
	case len(r.missing) == 0:
		return "all other hosts answer at their addresses; see their logs for one that fails later"
	}
	return ""
}

// reach asks the other workers for a connection. The TPU runtime listens while it waits for the
// slice.
func (s *starter) reach(ctx context.Context) (r reach) {
	dial := s.opts.Dial
	if dial == nil {
		dial = new(net.Dialer).DialContext
	}
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	var others []Process
	var places [][]string
	at := s.runtimeAddresses()
	for i, w := range s.workers() {
		if w.Task != s.cluster.Task {
			w.Address = at[i][0]
			others, places = append(others, w), append(places, at[i])
		}
	}
	var wg sync.WaitGroup
	for i := range others {
		wg.Go(func() { others[i].Err = connect(ctx, dial, places[i]) })
	}
	wg.Wait()
	r.asked, r.unknown = len(others), true
	for _, h := range others {
		if h.Err == nil {
			r.unknown = false
		}
	}
	for _, h := range others {
		var name *net.DNSError
		nameless := errors.As(h.Err, &name) && name.IsNotFound
		switch {
		case h.Err == nil:
		case nameless || !r.unknown:
			r.missing = append(r.missing, h)
		case r.sample.Err == nil:
			r.sample = h
		}
	}
	r.unknown = r.unknown && r.sample.Err != nil
	return r
}

// connect tries the addresses in order, and answers the first one's error if none takes the
// connection.
func connect(ctx context.Context, dial func(ctx context.Context, network, address string) (net.Conn, error), addresses []string) error {
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

// runtimeAddresses are where the TPU runtime of each worker may listen: at the addresses of
// TPU_PROCESS_ADDRESSES, or at the port of TPU_PROCESS_PORT, 8471 without it, of each host. An
// address of the cluster that has another port than TensorFlow's default may be the runtime's too,
// as where a resolver has read the process addresses.
func (s *starter) runtimeAddresses() [][]string {
	workers := s.workers()
	out := make([][]string, len(workers))
	// What does not parse has failed the check of the environment before.
	env, _ := clusterresolver.ReadEnvironment(getenvOf(s.opts))
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
