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

// Options configure a machine.
type Options struct {
	// Name gives a host its name in errors; nil is "host 0" and so on.
	Name func(process int) string
	// MeshShape is the grid of the devices, as in [tpu.LogicalOptions].
	MeshShape []int
	// Patience bounds waits of hosts for each other whose context has no earlier deadline, and
	// silence of a host; 0 is a minute.
	Patience time.Duration
	// Secret is what hosts have to know; the zero value is one drawn at random, which [Machine.Host]
	// tells.
	Secret string
	// MaxBytes bounds a program, and the arguments or results of one launch of one host; 0 is a
	// gigabyte.
	MaxBytes int64
	// Logger receives a line for each host that comes or goes; nil discards.
	Logger *slog.Logger
}

// Machine serves devices to hosts that are processes of their own. Its methods are safe for
// concurrent use.
type Machine struct {
	base     *system.System // of the keeping runtime
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

// run is the hosts that started together.
type run struct {
	name      string
	processes int
	cluster   *simhost.Cluster
	sessions  []*session // by process; nil where none has come or it has gone
	here      int
}

// Listen serves the devices of a system, which this process has to itself, on a "unix" or "tcp"
// address. A TCP address without a host, such as ":8478", is reached from this machine only. The
// system stays the caller's, to be closed after the machine.
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

// Addr is the address that the machine listens on.
func (m *Machine) Addr() net.Addr { return m.listener.Addr() }

// Host returns what a host of a run is to be told.
func (m *Machine) Host(run string, process, processes int) Host {
	return Host{Network: m.Addr().Network(), Address: m.Addr().String(), Secret: m.opts.Secret, Run: run, Process: process,
		Processes: processes}
}

// Cut cuts the connection of a host of a run, as a network that fails, and reports whether there
// was one.
func (m *Machine) Cut(run string, process int) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	r := m.runs[run]
	if r == nil || process < 0 || process >= len(r.sessions) || r.sessions[process] == nil {
		return false
	}
	return r.sessions[process].conn.Close() == nil
}

// Present returns which hosts of a run are connected, ascending.
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

// Close cuts all connections and gives the programs back. A second Close returns the first result.
func (m *Machine) Close() error {
	m.closing.Do(func() {
		m.mu.Lock()
		m.ended = true // so that no host hears of the end of another
		for s := range m.sessions {
			_ = s.conn.Close() // its end is what is wanted
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
			return // it is closed
		}
		s := newSession(m, conn)
		m.mu.Lock()
		if m.ended {
			_ = conn.Close() // serve notices
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

// leave takes a host out of its run. The others notice.
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

// forget ends a session.
func (m *Machine) forget(s *session) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.sessions, s)
}
