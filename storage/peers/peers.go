package peers

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net"
	"net/http"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/storage"
)

// Options configures the store that [Open] returns.
type Options struct {
	// Process is the index of this process.
	Process int
	// Gather sends mine to all processes and returns the bytes of all processes by index. The
	// method GatherBytes of a strategy implements it.
	Gather func(ctx context.Context, name string, mine []byte) ([][]byte, error)
	// Timeout is the timeout for the response headers of another host; 0 means 30 seconds. It does
	// not limit the transfer of the body.
	Timeout time.Duration
	// Logger receives a warning if the objects of a host cannot be listed; nil discards the
	// warnings.
	Logger *slog.Logger
}

type hostInfo struct {
	Name      string
	Addresses []string // of interfaces, with ports
	Secret    string
}

// processStore accesses the objects of one process. It is the local storage.Store, or a peer, which
// implements only these methods.
type processStore interface {
	Put(ctx context.Context, name string, opts storage.PutOptions, write func(io.Writer) error) error
	Open(ctx context.Context, name string) (storage.Object, error)
	List(ctx context.Context, prefix string) ([]storage.Info, error)
	Remove(ctx context.Context, name string) error
}

type peerStore struct {
	local      storage.Store
	server     *http.Server
	serverDone chan struct{} // closed when the server has stopped
	peers      []peer        // by process; unused for this process
	process    int
	log        *slog.Logger
}

// Open opens a store of the objects of all processes. local stores the objects of this host; the
// caller must close it after the returned store. All processes must call Open together. With a
// single process there are no copies on another host.
func Open(ctx context.Context, local storage.Store, o Options) (storage.Store, error) {
	fail := func(err error) (storage.Store, error) {
		return nil, &errkind.Fault{Op: "peers: open", Subject: local.String(), Err: err,
			Class: errkind.KindOr(err, errkind.UnavailableError)}
	}
	listener, err := net.Listen("tcp", ":0")
	if err != nil {
		return fail(err)
	}
	hosts, err := exchangeHosts(ctx, listener.Addr(), o)
	if err != nil {
		return fail(errors.Join(err, listener.Close()))
	}
	timeout := cmp.Or(o.Timeout, 30*time.Second)
	s := &peerStore{local: local, process: o.Process, log: cmp.Or(o.Logger, slog.New(slog.DiscardHandler)),
		serverDone: make(chan struct{}), peers: make([]peer, len(hosts))}
	for i, h := range hosts {
		s.peers[i] = newPeer(h, i, hosts[0].Secret, timeout)
	}
	s.server = &http.Server{Handler: requireSecret(hosts[0].Secret, newHandler(local)), ReadHeaderTimeout: timeout,
		ErrorLog: log.New(io.Discard, "", 0)}
	go func() {
		defer close(s.serverDone)
		_ = s.server.Serve(listener) // until Close
	}()
	return s, nil
}

// exchangeHosts sends the name, addresses and secret of this process to all processes, and returns
// the messages of all processes.
func exchangeHosts(ctx context.Context, local net.Addr, o Options) ([]hostInfo, error) {
	me := hostInfo{Secret: rand.Text()}
	me.Name, _ = os.Hostname()
	var err error
	if me.Addresses, err = reachableAddresses(local); err != nil {
		return nil, err
	}
	text, err := json.Marshal(me)
	if err != nil {
		return nil, err
	}
	all, err := o.Gather(ctx, "peers: addresses", text)
	if err != nil {
		return nil, err
	}
	hosts := make([]hostInfo, len(all))
	for i, text := range all {
		if err := json.Unmarshal(text, &hosts[i]); err != nil {
			return nil, fmt.Errorf("process %d: %w", i, err)
		}
	}
	return hosts, nil
}

// reachableAddresses returns the addresses at which other processes may reach a listener on local.
// Loopback addresses are last.
func reachableAddresses(local net.Addr) (all []string, err error) {
	_, port, err := net.SplitHostPort(local.String())
	if err != nil {
		return nil, err
	}
	interfaces, err := net.InterfaceAddrs()
	if err != nil {
		return nil, err
	}
	var loops []string
	for _, a := range interfaces {
		ip, ok := a.(*net.IPNet)
		switch {
		case !ok || ip.IP.IsLinkLocalUnicast():
		case ip.IP.IsLoopback():
			loops = append(loops, net.JoinHostPort(ip.IP.String(), port))
		default:
			all = append(all, net.JoinHostPort(ip.IP.String(), port))
		}
	}
	return append(all, loops...), nil
}

func (s *peerStore) String() string { return s.local.String() }

func (s *peerStore) storeFor(process int) processStore {
	if process == s.process {
		return s.local
	}
	return &s.peers[process]
}

// forEachProcess calls f concurrently for all processes whose index is not in except.
func (s *peerStore) forEachProcess(except []int, f func(processStore) error) error {
	errs := make([]error, len(s.peers))
	var all sync.WaitGroup
	for i := range s.peers {
		if !slices.Contains(except, i) {
			all.Go(func() { errs[i] = f(s.storeFor(i)) })
		}
	}
	all.Wait()
	return errors.Join(errs...)
}

// Put stores an object on this process and on the next one, and removes objects of that name from
// all other processes. With IfAbsent, it stores the object on processes 0 and 1, so that process 0
// decides which of several writers succeeds.
func (s *peerStore) Put(ctx context.Context, name string, opts storage.PutOptions, write func(io.Writer) error) error {
	if err := storage.CheckName(name); err != nil {
		return err
	}
	home := s.process
	if opts.IfAbsent {
		home = 0
		if o, err := s.Open(ctx, name); !errors.Is(err, storage.ErrNotExist) {
			if err == nil {
				err = errors.Join(storage.ErrExists, o.Close())
			}
			return storage.WrapError("put", name, s, err)
		}
	}
	copies := []int{home, (home + 1) % len(s.peers)}
	err := s.storeFor(home).Put(ctx, name, opts, write)
	if err == nil && copies[1] != home {
		if err = s.storeFor(copies[1]).Put(ctx, name, storage.PutOptions{Size: opts.Size}, write); err != nil {
			err = errors.Join(err, s.storeFor(home).Remove(context.WithoutCancel(ctx), name))
		}
	}
	if err == nil && !opts.IfAbsent {
		err = s.forEachProcess(copies, func(p processStore) error { return p.Remove(ctx, name) })
	}
	return storage.WrapError("put", name, s, err)
}

// Open opens the object on this host. If this host has no copy, Open tries the other processes,
// beginning with the next one.
func (s *peerStore) Open(ctx context.Context, name string) (storage.Object, error) {
	if err := storage.CheckName(name); err != nil {
		return nil, err
	}
	var errs []error
	for i := range s.peers {
		o, err := s.storeFor((s.process+i)%len(s.peers)).Open(ctx, name)
		if err == nil {
			return o, nil
		}
		if ctx.Err() != nil {
			return nil, storage.WrapError("open", name, s, err)
		}
		if !errors.Is(err, storage.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	if len(errs) > 0 {
		return nil, storage.WrapError("open", name, s, errors.Join(errs...))
	}
	return nil, storage.WrapError("open", name, s, storage.ErrNotExist)
}

// List lists the objects of all processes. If the objects of a process cannot be listed, List logs
// a warning and relies on their copies on the next process. It fails if no process can be listed.
func (s *peerStore) List(ctx context.Context, prefix string) (all []storage.Info, err error) {
	var mu sync.Mutex
	listed := 0
	err = s.forEachProcess(nil, func(p processStore) error {
		some, err := p.List(ctx, prefix)
		mu.Lock()
		defer mu.Unlock()
		if err == nil {
			listed++
			all = append(all, some...)
		}
		return err
	})
	if err != nil && (listed == 0 || ctx.Err() != nil) {
		return nil, storage.WrapError("list", prefix, s, err)
	}
	if err != nil {
		s.log.Warn("peers: the objects of a host cannot be listed; their copies on other hosts are used", "store",
			s.String(), "error", err)
	}
	// The newest copy of an object is listed.
	slices.SortFunc(all, func(a, b storage.Info) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), b.Modified.Compare(a.Modified))
	})
	return slices.CompactFunc(all, func(a, b storage.Info) bool { return a.Name == b.Name }), nil
}

func (s *peerStore) Remove(ctx context.Context, name string) error {
	if err := storage.CheckName(name); err != nil {
		return err
	}
	return storage.WrapError("remove", name, s, s.forEachProcess(nil,
		func(p processStore) error { return p.Remove(ctx, name) }))
}

// Sweep sweeps the objects of this host only.
func (s *peerStore) Sweep(ctx context.Context, prefix string, isLive func(name string) bool) error {
	if sweeper, ok := s.local.(storage.Sweeper); ok {
		return sweeper.Sweep(ctx, prefix, isLive)
	}
	return nil
}

// Close stops the server. Other hosts can then no longer read the objects of this host.
func (s *peerStore) Close() error {
	err := s.server.Close()
	<-s.serverDone
	for i := range s.peers {
		s.peers[i].client.CloseIdleConnections()
	}
	return err
}
