package prochost

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/internal/handshake"
	"github.com/tpustrategy/tpustrategy/tpu"
	"github.com/tpustrategy/tpustrategy/tpu/simhost"
	"github.com/tpustrategy/tpustrategy/tpu/system"
)

// Options configures a [Machine].
type Options struct {
	// Name returns the name of a host for error messages. If it is nil, hosts are named "host 0"
	// and so on.
	Name func(process int) string
	// MeshShape is the grid of the devices, as in [tpu.LogicalOptions].
	MeshShape []int
	// Patience limits the time that hosts wait for each other if the context has no earlier
	// deadline. It also limits the time without a message from a host. If zero, it is one minute.
	Patience time.Duration
	// Secret authenticates hosts. If it is empty, Listen generates a random secret, which
	// [Machine.Host] includes in its result.
	Secret string
	// MaxBytes limits the size of a program, and the size of the arguments or results of one launch
	// on one host. If zero, it is one gigabyte.
	MaxBytes int64
	// Logger logs the connections and disconnections of hosts. If it is nil, they are not logged.
	Logger *slog.Logger
}

// Machine is a server that makes its devices available to hosts in other processes. Its methods are
// safe for concurrent use.
type Machine struct {
	base     *system.System // uses the keeping runtime
	keeping  *keeping
	opts     Options
	devices  int
	listener *handshake.Listener
	ctx      context.Context
	cancel   context.CancelFunc
	serving  sync.WaitGroup

	mu       sync.Mutex
	runs     map[string]*run
	sessions map[*session]struct{}
	ended    bool
	closing  sync.Once
	result   error
}

// run is a group of hosts that start together.
type run struct {
	name      string
	processes int
	cluster   *simhost.Cluster
	sessions  []*session // by process; nil if the process is not connected
	here      int
}

// Listen serves the devices of base on a "unix" or "tcp" address. A TCP address without a host,
// such as ":8478", accepts only connections from this computer. The caller must not use base for
// anything else, and must close it after the machine.
func Listen(base *system.System, network, address string, opts Options) (*Machine, error) {
	if opts.Patience < 0 || opts.MaxBytes < 0 {
		return nil, fault("listen", errkind.ValueError, "a patience of %v and bodies of %d bytes: give numbers from 0",
			opts.Patience, opts.MaxBytes)
	}
	if opts.Patience == 0 {
		opts.Patience = time.Minute
	}
	if opts.MaxBytes == 0 {
		opts.MaxBytes = 1 << 30
	}
	if opts.Name == nil {
		opts.Name = func(i int) string { return fmt.Sprintf("host %d", i) }
	}
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	if opts.Secret == "" {
		opts.Secret = rand.Text()
	}
	if opts.MeshShape == nil {
		shape := base.Topology().MeshShape()
		opts.MeshShape = shape[:]
	}
	devices := base.Topology().NumDevices()
	if _, err := tpu.LogicalTopology(tpu.LogicalOptions{Devices: devices, MeshShape: opts.MeshShape}); err != nil {
		return nil, &errkind.Fault{Op: "prochost: listen", Err: err}
	}
	keeping := &keeping{Runtime: base.Runtime(), programs: map[[sha256.Size]byte]*kept{}}
	over, err := system.New(keeping, base.Topology())
	if err != nil {
		return nil, err
	}
	listener, err := handshake.Listen(network, address, opts.Secret, func(peer net.Addr, err error) {
		opts.Logger.Warn("prochost: a peer was turned away", "peer", peer, "error", err)
	})
	if err != nil {
		return nil, &errkind.Fault{Op: "prochost: listen", Err: err}
	}
	ctx, cancel := context.WithCancel(context.Background())
	m := &Machine{base: over, keeping: keeping, opts: opts, devices: devices, listener: listener, ctx: ctx, cancel: cancel,
		runs: map[string]*run{}, sessions: map[*session]struct{}{}}
	m.serving.Go(m.accept)
	return m, nil
}

// Addr returns the address that the machine listens on.
func (m *Machine) Addr() net.Addr { return m.listener.Addr() }

// Host returns the configuration of a host process.
func (m *Machine) Host(run string, process, processes int) Host {
	return Host{Network: m.Addr().Network(), Address: m.Addr().String(), Secret: m.opts.Secret, Run: run, Process: process,
		Processes: processes}
}

// Cut closes the connection of a host, to simulate a network failure. It reports whether the host
// was connected.
func (m *Machine) Cut(run string, process int) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	r := m.runs[run]
	if r == nil || process < 0 || process >= len(r.sessions) || r.sessions[process] == nil {
		return false
	}
	return r.sessions[process].conn.Close() == nil
}

// Present returns the process numbers of the connected hosts of a run in ascending order.
func (m *Machine) Present(run string) (processes []int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if r := m.runs[run]; r != nil {
		for i, s := range r.sessions {
			if s != nil {
				processes = append(processes, i)
			}
		}
	}
	return processes
}

// Close closes all connections and programs. Later calls return the result of the first call.
func (m *Machine) Close() error {
	m.closing.Do(func() {
		m.mu.Lock()
		m.ended = true // stops the notices about lost hosts
		for s := range m.sessions {
			_ = s.conn.Close() // the connection is discarded
		}
		m.mu.Unlock()
		err := m.listener.Close()
		m.cancel()
		m.serving.Wait()
		m.result = errors.Join(err, m.keeping.Close())
	})
	return m.result
}

// accept starts a session for each connection.
func (m *Machine) accept() {
	for {
		conn, err := m.listener.Accept()
		if err != nil {
			return // the listener is closed
		}
		s := newSession(m, conn)
		m.mu.Lock()
		if m.ended {
			_ = conn.Close() // serve detects the closed connection
		}
		m.sessions[s] = struct{}{}
		m.mu.Unlock()
		m.serving.Go(s.serve)
	}
}

// enter adds a host to its run.
func (m *Machine) enter(s *session, h *hello) (*run, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	r := m.runs[h.Run]
	if r == nil {
		var names []string
		for i := range min(h.Processes, m.devices) {
			names = append(names, m.opts.Name(i))
		}
		cluster, err := simhost.New(m.base, simhost.Options{Processes: h.Processes, Names: names, MeshShape: m.opts.MeshShape,
			Patience: m.opts.Patience})
		if err != nil {
			return nil, err
		}
		r = &run{name: h.Run, processes: h.Processes, cluster: cluster, sessions: make([]*session, h.Processes)}
	}
	switch {
	case h.Processes != r.processes:
		return nil, fault("open", errkind.ValueError, "%s counts %d hosts in run %q, and another counts %d",
			m.opts.Name(h.Process), h.Processes, h.Run, r.processes)
	case h.Process < 0 || h.Process >= r.processes:
		return nil, fault("open", errkind.ValueError, "host %d of %d: hosts count from 0", h.Process, r.processes)
	case r.sessions[h.Process] != nil:
		return nil, fault("open", errkind.RuntimeError, "%s is in run %q already", m.opts.Name(h.Process), h.Run)
	}
	m.runs[h.Run] = r
	r.sessions[h.Process] = s
	r.here++
	return r, nil
}

// leave removes a host from its run. The other hosts receive an error.
func (m *Machine) leave(r *run, process int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.ended {
		r.cluster.Kill(process)
	}
	r.sessions[process] = nil
	if r.here--; r.here == 0 {
		delete(m.runs, r.name)
	}
}

// forget removes a session that has ended.
func (m *Machine) forget(s *session) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.sessions, s)
}
