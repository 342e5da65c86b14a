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
}

// host is what a process tells the others.
type host struct {
	Name      string
	Addresses []string // of interfaces, with ports
	Secret    string
}

// part is what one process has of the objects.
type part interface {
	put(ctx context.Context, name string, opts storage.PutOptions, write func(io.Writer) error) error
	open(ctx context.Context, name string) (storage.Object, error)
	list(ctx context.Context, prefix string) ([]storage.Info, error)
	remove(ctx context.Context, name string) error
}

// localPart is the part of this process.
type localPart struct{ storage.Store }

func (h localPart) put(ctx context.Context, name string, opts storage.PutOptions, write func(io.Writer) error) error {
	return h.Put(ctx, name, opts, write)
}
func (h localPart) open(ctx context.Context, name string) (storage.Object, error) {
	return h.Open(ctx, name)
}
func (h localPart) list(ctx context.Context, prefix string) ([]storage.Info, error) {
	return h.List(ctx, prefix)
}

func (h localPart) remove(ctx context.Context, name string) error { return h.Remove(ctx, name) }

// store is the objects of all processes.
type store struct {
	local  storage.Store
	server *http.Server
	ended  chan struct{} // the server
	peers  []peer        // by process; this one's has no address
	mine   int
}

// Open opens the store whose local part is a store of this host, which stays the caller's. All
// processes call it. With one process there is no neighbour, and the store is the local one.
func Open(ctx context.Context, local storage.Store, o Options) (storage.Store, error) {
	fail := func(err error) (storage.Store, error) {
		return nil, &errkind.Fault{Op: "peers: open", Subject: local.String(), Err: err, Class: errkind.Or(err, errkind.UnavailableError)}
	}
	listener, err := net.Listen("tcp", ":0")
	if err != nil {
		return fail(err)
	}
	me := host{Secret: rand.Text()}
	me.Name, _ = os.Hostname()
	if me.Addresses, err = addresses(listener.Addr()); err != nil {
		return fail(errors.Join(err, listener.Close()))
	}
	text, err := json.Marshal(me)
	if err != nil {
		return fail(errors.Join(err, listener.Close()))
	}
	all, err := o.Gather(ctx, "peers: addresses", text)
	if err != nil {
		return fail(errors.Join(err, listener.Close()))
	}
	hosts := make([]host, len(all))
	for i, text := range all {
		if err := json.Unmarshal(text, &hosts[i]); err != nil {
			return fail(errors.Join(fmt.Errorf("process %d: %w", i, err), listener.Close()))
		}
	}
	patience := cmp.Or(o.Patience, 30*time.Second)
	s := &store{local: local, mine: o.Process, ended: make(chan struct{}), peers: make([]peer, len(hosts))}
	for i, h := range hosts {
		s.peers[i] = newPeer(h, i, hosts[0].Secret, patience)
	}
	s.server = &http.Server{Handler: guard(hosts[0].Secret, serve(localPart{local})), ReadHeaderTimeout: patience, ErrorLog: log.New(io.Discard, "", 0)}
	go func() {
		defer close(s.ended)
		_ = s.server.Serve(listener) // until Close
	}()
	return s, nil
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
		return localPart{s.local}
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
	err := s.on(home).put(ctx, name, opts, write)
	if err == nil && copies[1] != home {
		if err = s.on(copies[1]).put(ctx, name, storage.PutOptions{Size: opts.Size}, write); err != nil {
			err = errors.Join(err, s.on(home).remove(context.WithoutCancel(ctx), name))
		}
	}
	if err == nil && !opts.IfAbsent {
		err = s.each(copies, func(p part) error { return p.remove(ctx, name) })
	}
	return storage.Failed("put", name, s, err)
}

// Open takes the object from here, or else from the first process that has it, the next one first.
func (s *store) Open(ctx context.Context, name string) (storage.Object, error) {
	if err := storage.CheckName(name); err != nil {
		return nil, err
	}
	for i := range s.peers {
		o, err := s.on((s.mine+i)%len(s.peers)).open(ctx, name)
		if !errors.Is(err, storage.ErrNotExist) {
			return o, storage.Failed("open", name, s, err)
		}
	}
	return nil, storage.Failed("open", name, s, storage.ErrNotExist)
}

func (s *store) List(ctx context.Context, prefix string) (all []storage.Info, err error) {
	var mu sync.Mutex
	err = s.each(nil, func(p part) error {
		some, err := p.list(ctx, prefix)
		mu.Lock()
		defer mu.Unlock()
		all = append(all, some...)
		return err
	})
	if err != nil {
		return nil, storage.Failed("list", prefix, s, err)
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
	return storage.Failed("remove", name, s, s.each(nil, func(p part) error { return p.remove(ctx, name) }))
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
