package watchdog

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/tpustrategy/tpustrategy/storage"
)

// memory is a store in memory.
type memory struct {
	mu      sync.Mutex
	objects map[string][]byte
	fail    map[int]error // errors of puts and reads, by host
	mute    map[int]bool  // hosts whose puts are lost
}

func newMemory() *memory {
	return &memory{objects: map[string][]byte{}, fail: map[int]error{}, mute: map[int]bool{}}
}

func (m *memory) put(name string, data []byte) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.objects[name] = data
}

// view is the store as a host accesses it.
type view struct {
	*memory
	host int
}

func (v view) wrong() error {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.fail[v.host]
}

func (v view) Put(_ context.Context, name string, _ storage.PutOptions, write func(io.Writer) error) error {
	var b bytes.Buffer
	if err := errors.Join(v.wrong(), write(&b)); err != nil {
		return err
	}
	v.mu.Lock()
	mute := v.mute[v.host]
	v.mu.Unlock()
	if !mute {
		v.put(name, b.Bytes())
	}
	return nil
}

func (v view) Open(_ context.Context, name string) (storage.Object, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	data, ok := v.objects[name]
	if !ok {
		return nil, storage.ErrNotExist
	}
	return object(data), v.fail[v.host]
}

func (v view) List(_ context.Context, prefix string) (all []storage.Info, err error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for name, data := range v.objects {
		if strings.HasPrefix(name, prefix) {
			all = append(all, storage.Info{Name: name, Size: int64(len(data))})
		}
	}
	slices.SortFunc(all, func(a, b storage.Info) int { return strings.Compare(a.Name, b.Name) })
	return all, v.fail[v.host]
}

func (v view) Remove(context.Context, string) error { return nil }
func (view) String() string                         { return "memory" }
func (view) Close() error                           { return nil }

type object []byte

func (o object) Size() int64 { return int64(len(o)) }
func (o object) ReadAt(_ context.Context, p []byte, at int64) error {
	copy(p, o[at:])
	return nil
}
func (object) Close() error { return nil }

// slice is a set of hosts that meet in launches and exchanges.
type slice struct {
	hosts int
	store *memory
	mu    sync.Mutex
	at    map[string]*meeting

	reports [][]Report // by host
	times   [][]time.Time
}

type meeting struct {
	come int
	all  chan struct{}
}

func newSlice(hosts int) *slice {
	return &slice{hosts: hosts, store: newMemory(), at: map[string]*meeting{}, reports: make([][]Report, hosts),
		times: make([][]time.Time, hosts)}
}

// meet waits until all hosts are at the same call.
func (s *slice) meet(ctx context.Context, call string) error {
	s.mu.Lock()
	m := s.at[call]
	if m == nil {
		m = &meeting{all: make(chan struct{})}
		s.at[call] = m
	}
	if m.come++; m.come == s.hosts {
		close(m.all)
		delete(s.at, call)
	}
	s.mu.Unlock()
	select {
	case <-m.all:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// host is a host of a slice in a test.
type host struct {
	*Watchdog
	i    int
	ctx  context.Context
	dice *rand.Rand
	// meet waits until all hosts are at the same call.
	meet func(ctx context.Context, call string) error
	// hush stops the records of the host for a duration, 0 for ever. lose makes the place of the
	// records inaccessible for the host.
	hush func(d time.Duration)
	lose func()
	// at is called at each place of the loop, such as "input", before the activity of that place.
	at func(h *host, place string, step int) error
}

// open starts a host's watchdog.
func (s *slice) open(i int, o Options, at func(h *host, place string, step int) error) (*host, func(error), error) {
	o.Host, o.Hosts, o.Run, o.Name = i, s.hosts, "run", "w"
	if o.RecordStore == nil {
		o.RecordStore = NewRecordStore(view{s.store, i})
	}
	o.OnReport = func(r Report) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.reports[i] = append(s.reports[i], r)
		s.times[i] = append(s.times[i], time.Now())
	}
	w, err := Start(context.Background(), o)
	if err != nil {
		return nil, nil, err
	}
	ctx, stop := w.Context(context.Background())
	h := &host{Watchdog: w, i: i, ctx: ctx, dice: rand.New(rand.NewPCG(7, uint64(i))), at: at, meet: s.meet,
		lose: func() { s.lose(i) }}
	h.hush = func(d time.Duration) { s.hush(h, d) }
	return h, func(err error) { stop(); _ = w.Close(err) }, nil
}

// hush stops the records of a host.
func (s *slice) hush(h *host, d time.Duration) {
	mute := func(on bool) {
		s.store.mu.Lock()
		s.store.mute[h.i] = on
		s.store.mu.Unlock()
	}
	mute(true)
	if d == 0 {
		<-h.ctx.Done()
		return
	}
	time.Sleep(d)
	mute(false)
}

func (s *slice) lose(i int) {
	s.store.mu.Lock()
	s.store.fail[i] = errors.New("no route to host")
	s.store.mu.Unlock()
}

// sleep sleeps for a randomly varied duration, sometimes much longer.
func (h *host) sleep(d time.Duration) {
	d += time.Duration(h.dice.Int64N(int64(d) + 1))
	if h.dice.IntN(500) == 0 && d < time.Second {
		d *= 8
	}
	time.Sleep(d)
}

// run runs steps like the loop of package fit. A place is the name of an activity. All hosts meet
// in the activities that require all of them.
func (h *host) run(steps int) error {
	do := func(kind Activity, name string, place string, step int, took time.Duration, call string) error {
		h.SetActivity(kind, name)
		if h.at != nil {
			if err := h.at(h, place, step); err != nil {
				return err
			}
		}
		if took > 0 {
			h.sleep(took)
		}
		if call != "" {
			return h.meet(h.ctx, call)
		}
		return nil
	}
	name := func(what string, step int) string {
		return what + string(rune('a'+step%26)) + time.Duration(step).String()
	}
	if err := do(Setup, "", "setup", 0, time.Second, ""); err != nil {
		return err
	}
	for step := 1; step <= steps; step++ {
		if err := do(Input, "", "input", step, 2*time.Millisecond, ""); err != nil {
			return err
		}
		h.SetActivity(Launch, "")
		if step == 1 {
			end := h.BeginNested(Compile, "train_step")
			if err := h.at(h, "compile", step); err != nil {
				return err
			}
			h.sleep(500 * time.Millisecond)
			end()
		}
		if err := do(Launch, "", "launch", step, 5*time.Millisecond, name("launch", step)); err != nil {
			return err
		}
		if err := h.at(h, "launched", step); err != nil {
			return err
		}
		h.CompleteStep()
		if step%10 != 0 {
			continue
		}
		if err := do(Result, "", "result", step, time.Millisecond, name("result", step)); err != nil {
			return err
		}
		h.SetLoss(int64(step), 1/float64(step))
		hook := time.Millisecond
		if step%1000 == 0 {
			hook = 20 * time.Second // an evaluation
		}
		if err := do(Hook, "evaluate", "hook", step, hook, ""); err != nil {
			return err
		}
		if err := do(Exchange, "fit: after step", "exchange", step, 0, name("agree", step)); err != nil {
			return err
		}
		if step%40 != 0 {
			continue
		}
		save := time.Millisecond
		if h.i == 0 {
			if save = 100 * time.Millisecond; step%2000 == 0 {
				save = 400 * time.Millisecond
			}
		}
		if err := do(Save, "checkpoint", "save", step, save, ""); err != nil {
			return err
		}
		h.SetCheckpoint(int64(step))
		if err := do(Exchange, "fit: after step", "saved", step, 0, name("saved", step)); err != nil {
			return err
		}
	}
	return nil
}
