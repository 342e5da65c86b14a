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

// Options configure a store.
type Options struct {
	// Process is the number of this process.
	Process int
	// Gather returns the bytes of all processes, in their order, to all of them: the method
	// GatherBytes of a strategy.
	Gather func(ctx context.Context, name string, mine []byte) ([][]byte, error)
	// Patience is how long another host may take to answer, not counting the bytes that it sends; 0 is
	// 30 seconds.
	Patience time.Duration
	// Logger receives a warning for each part that cannot be listed; nil discards the warnings.
	Logger *slog.Logger
}

// host is what a process tells the others.
type host struct {
	Name      string
	Addresses []string // of interfaces, with ports
	Secret    string
}

// part is what one process has of the objects: a store without what a peer does not need.
type part interface {
	Put(ctx context.Context, name string, opts storage.PutOptions, write func(io.Writer) error) error
	Open(ctx context.Context, name string) (storage.Object, error)
	List(ctx context.Context, prefix string) ([]storage.Info, error)
	Remove(ctx context.Context, name string) error
}

// store is the objects of all processes.
type store struct {
	local  storage.Store
	server *http.Server
	ended  chan struct{} // the server
	peers  []peer        // by process; this one's has no address
	mine   int
	log    *slog.Logger
}

// Open opens the store whose local part is a store of this host, which stays the caller's. All
// processes call it. With one process there is no neighbor, and the store is the local one.
func Open(ctx context.Context, local storage.Store, o Options) (storage.Store, error) {
	fail := func(err error) (storage.Store, error) {
		return nil, &errkind.Fault{Op: "peers: open", Subject: local.String(), Err: err, Class: errkind.Or(err, errkind.UnavailableError)}
	}
	listener, err := net.Listen("tcp", ":0")
	if err != nil {
		return fail(err)
	}
	hosts, err := meet(ctx, listener.Addr(), o)
	if err != nil {
		return fail(errors.Join(err, listener.Close()))
	}
	patience := cmp.Or(o.Patience, 30*time.Second)
	s := &store{local: local, mine: o.Process, log: cmp.Or(o.Logger, slog.New(slog.DiscardHandler)), ended: make(chan struct{}), peers: make([]peer, len(hosts))}
	for i, h := range hosts {
		s.peers[i] = newPeer(h, i, hosts[0].Secret, patience)
	}
	s.server = &http.Server{Handler: guard(hosts[0].Secret, serve(local)), ReadHeaderTimeout: patience, ErrorLog: log.New(io.Discard, "", 0)}
	go func() {
		defer close(s.ended)
		_ = s.server.Serve(listener) // until Close
	}()
	return s, nil
}

// meet tells all processes where this one listens, and returns what all of them tell.
func meet(ctx context.Context, at net.Addr, o Options) ([]host, error) {
	me := host{Secret: rand.Text()}
	me.Name, _ = os.Hostname()
	var err error
	if me.Addresses, err = addresses(at); err != nil {
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
	hosts := make([]host, len(all))
	for i, text := range all {
		if err := json.Unmarshal(text, &hosts[i]); err != nil {
			return nil, fmt.Errorf("process %d: %w", i, err)
		}
	}
	return hosts, nil
}

// addresses are those at which other hosts may reach a port of this one, those of the machine itself
// last.
func addresses(at net.Addr) (all []string, err error) {
	_, port, err := net.SplitHostPort(at.String())
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

func (s *store) String() string { return s.local.String() }

// on is the part of a process.
func (s *store) on(process int) part {
	if process == s.mine {
		return s.local
	}
	return &s.peers[process]
}

// each does something on all processes but some, at once.
func (s *store) each(but []int, do func(part) error) error {
	errs := make([]error, len(s.peers))
	var all sync.WaitGroup
	for i := range s.peers {
		if !slices.Contains(but, i) {
			all.Go(func() { errs[i] = do(s.on(i)) })
		}
	}
	all.Wait()
	return errors.Join(errs...)
}

// Put puts an object here and on the next process. What others have of that name goes. Of an object
// that is to be absent the first process decides, and has it.
func (s *store) Put(ctx context.Context, name string, opts storage.PutOptions, write func(io.Writer) error) error {
	if err := storage.CheckName(name); err != nil {
		return err
	}
	home := s.mine
	if opts.IfAbsent {
		home = 0
		if o, err := s.Open(ctx, name); !errors.Is(err, storage.ErrNotExist) {
			if err == nil {
				err = errors.Join(storage.ErrExists, o.Close())
			}
			return storage.Failed("put", name, s, err)
		}
	}
	copies := []int{home, (home + 1) % len(s.peers)}
	err := s.on(home).Put(ctx, name, opts, write)
	if err == nil && copies[1] != home {
		if err = s.on(copies[1]).Put(ctx, name, storage.PutOptions{Size: opts.Size}, write); err != nil {
			err = errors.Join(err, s.on(home).Remove(context.WithoutCancel(ctx), name))
		}
	}
	if err == nil && !opts.IfAbsent {
		err = s.each(copies, func(p part) error { return p.Remove(ctx, name) })
	}
	return storage.Failed("put", name, s, err)
}

// Open opens the copy of the object on this host, or else the copy of the first process that has one
// which can be read; the next process is first.
func (s *store) Open(ctx context.Context, name string) (storage.Object, error) {
	if err := storage.CheckName(name); err != nil {
		return nil, err
	}
	var errs []error
	for i := range s.peers {
		o, err := s.on((s.mine+i)%len(s.peers)).Open(ctx, name)
		if err == nil {
			return o, nil
		}
		if ctx.Err() != nil {
			return nil, storage.Failed("open", name, s, err)
		}
		if !errors.Is(err, storage.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	if len(errs) > 0 {
		return nil, storage.Failed("open", name, s, errors.Join(errs...))
	}
	return nil, storage.Failed("open", name, s, storage.ErrNotExist)
}

// List lists the objects of all processes. A part that cannot be listed counts as lost, like the part
// of a host that was replaced: the copies on the next host replace it. List fails if no part can be
// listed.
func (s *store) List(ctx context.Context, prefix string) (all []storage.Info, err error) {
	var mu sync.Mutex
	listed := 0
	err = s.each(nil, func(p part) error {
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
		return nil, storage.Failed("list", prefix, s, err)
	}
	if err != nil {
		s.log.Warn("peers: a host's part cannot be listed, and counts as lost", "store", s.String(), "error", err)
	}
	// Of the copies of an object the newest stands for it.
	slices.SortFunc(all, func(a, b storage.Info) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), b.Modified.Compare(a.Modified))
	})
	return slices.CompactFunc(all, func(a, b storage.Info) bool { return a.Name == b.Name }), nil
}

func (s *store) Remove(ctx context.Context, name string) error {
	if err := storage.CheckName(name); err != nil {
		return err
	}
	return storage.Failed("remove", name, s, s.each(nil, func(p part) error { return p.Remove(ctx, name) }))
}

// Sweep sweeps this host's part.
func (s *store) Sweep(ctx context.Context, prefix string, live func(name string) bool) error {
	if sweeper, ok := s.local.(storage.Sweeper); ok {
		return sweeper.Sweep(ctx, prefix, live)
	}
	return nil
}

// Close ends the service; other hosts cannot reach this one's objects any more.
func (s *store) Close() error {
	err := s.server.Close()
	<-s.ended
	for i := range s.peers {
		s.peers[i].client.CloseIdleConnections()
	}
	return err
}
