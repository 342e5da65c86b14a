package checkpoint

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/internal/staging"
	"github.com/tpustrategy/tpustrategy/storage"
	"github.com/tpustrategy/tpustrategy/strategy"
)

// ManagerOptions configure a manager. The zero value is for one process, and keeps every
// checkpoint.
type ManagerOptions struct {
	// Strategy is the strategy of the variables that are saved. It may be nil for one process. Where
	// several processes share it, each of them has a manager for the same store and makes the same
	// calls of Save.
	Strategy *strategy.TPUStrategy
	// Retention says which checkpoints stay. The zero value keeps all.
	Retention Retention
	// Patience is how long process 0 waits for the parts of the others after its own is saved. 0 is
	// ten minutes.
	Patience time.Duration
	// TakeOver saves even if another run still saves there; see [OwnerError].
	TakeOver bool
	// Logger is told, once, of what stays in the store because no verified manifest disowns it: a
	// warning whose attribute "error" says what, and why. Nil discards.
	Logger *slog.Logger
}

// Manager keeps checkpoints in a folder or an object store, one for each saved step, as
// tf.train.CheckpointManager does. Every process saves what its devices hold, and a save goes on in
// the background. It is safe for concurrent use; saves take turns. Close it after use.
type Manager struct {
	store    storage.Store
	opened   bool // the store is the manager's own
	opts     ManagerOptions
	host     int
	hosts    int
	self     ownerRecord
	run      string // the random name of this run; that of process 0 from the first save on
	agreed   bool
	saves    int             // how many were begun
	last     int64           // the last step that this run knows of; -1 is none
	owned    atomic.Bool     // the owner's record is this run's
	said     map[string]bool // what the logger was told
	memory   []byte          // of an image
	stopping context.CancelFunc
	lives    context.Context

	turn chan struct{} // held by a call that changes something
	// hurry is when process 0 is to wait for the parts of the others no longer, in nanoseconds; 0 is
	// not set.
	hurry atomic.Int64

	mu         sync.Mutex
	background chan struct{} // closed when the save under way is over; nil if there is none
	err        error         // of the last, until it is returned
	times      SaveTimes
	closed     bool
}

// BackgroundError reports a save that failed after Save had returned.
type BackgroundError struct {
	// Place is the store, and Step the step that was to be saved.
	Place string
	Step  int64
	Err   error
}

func (e *BackgroundError) Error() string {
	return errkind.Text(fmt.Sprintf("checkpoint: save step %d in %s", e.Step, e.Place), "in the background", e.Err, "the earlier checkpoints are as they were")
}

// Unwrap returns the cause.
func (e *BackgroundError) Unwrap() error { return e.Err }

// Kind returns the cause's kind, or RuntimeError.
func (e *BackgroundError) Kind() errkind.Kind { return errkind.Or(e.Err, errkind.RuntimeError) }

const defaultPatience = 10 * time.Minute

// OpenManager returns the manager of the checkpoints in a folder, which it makes if there is none, or
// at the URL of a store that package storage knows, such as gs://bucket/run where the program imports
// the package for it. It lists the saved steps, reads no checkpoint, and removes folders of steps that an
// interrupted save has left empty.
//
// A place is for one run at a time: see [OwnerError].
func OpenManager(ctx context.Context, place string, opts ManagerOptions) (*Manager, error) {
	store, err := storage.Open(ctx, place)
	if err != nil {
		return nil, err
	}
	m, err := NewManager(ctx, store, opts)
	if err != nil {
		return nil, errors.Join(err, store.Close())
	}
	m.opened = true
	return m, nil
}

// NewManager is OpenManager of a store that is open, which stays the caller's: close it after the
// manager.
func NewManager(ctx context.Context, store storage.Store, opts ManagerOptions) (*Manager, error) {
	if store == nil {
		return nil, wrong("manager", "open one with storage.Open", "no store")
	}
	if err := opts.Retention.check(); err != nil {
		return nil, err
	}
	if opts.Patience < 0 {
		return nil, wrong("manager", "0 is ten minutes", "a patience of %v", opts.Patience)
	}
	opts.Patience = cmp.Or(opts.Patience, defaultPatience)
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	m := &Manager{store: store, opts: opts, hosts: 1, self: newOwner(), last: -1, said: map[string]bool{}, turn: make(chan struct{}, 1)}
	if opts.Strategy != nil && opts.Strategy.NumProcesses() > 1 {
		m.host, m.hosts = opts.Strategy.Process(), opts.Strategy.NumProcesses()
	}
	m.run = strings.ToLower(rand.Text()[:12])
	m.lives, m.stopping = context.WithCancel(context.Background())
	steps, err := m.Steps(ctx)
	if err != nil {
		return nil, err
	}
	m.saw(steps...)
	if err := m.removeEmptyFolders(ctx); err != nil {
		return nil, err
	}
	return m, nil
}

// saw notes steps that this run knows of.
func (m *Manager) saw(steps ...int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, step := range steps {
		m.last = max(m.last, step)
	}
}

func (m *Manager) known() int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.last
}

// Place returns the store's path or URL.
func (m *Manager) Place() string { return m.store.String() }

// Steps returns the saved steps, ascending. It leaves out saves that were interrupted.
func (m *Manager) Steps(ctx context.Context) ([]int64, error) {
	// A listing is not atomic. While another process saves a step and removes the only earlier one, a
	// listing may contain objects of both and neither manifest, but a later listing contains the new step.
	for range 3 {
		steps, partial, err := m.list(ctx)
		if err != nil || len(steps) > 0 || !partial {
			return steps, err
		}
	}
	return nil, nil
}

// list returns the steps of one listing of the store, ascending. partial reports that the listing has
// objects of steps without a manifest.
func (m *Manager) list(ctx context.Context) (steps []int64, partial bool, err error) {
	all, err := m.store.List(ctx, stepPrefix)
	if err != nil {
		return nil, false, doing("list steps", "", err)
	}
	for _, info := range all {
		name, ok := strings.CutSuffix(info.Name, "/"+manifestFile)
		if step, is := parseStep(name); ok && is {
			steps = append(steps, step)
		}
	}
	slices.Sort(steps)
	return steps, len(all) > len(steps), nil
}

// Open opens the checkpoint of a step: one in shards, or one of an earlier version of this package in
// one file. It reads the manifests and no tensors. The error matches [ErrNone] if the step was not
// saved, or was removed before it could be opened, and [ErrCorrupt] if Open finds that the checkpoint
// is damaged. Close the checkpoint before the store.
func (m *Manager) Open(ctx context.Context, step int64) (*Checkpoint, error) {
	c, err := openIn(ctx, m.store, step)
	if err == nil {
		m.saw(step)
	}
	return c, err
}

// openIn opens the checkpoint of a step in a store. If another process replaces or removes the
// checkpoint meanwhile, openIn opens the new one, or returns an error that matches ErrNone.
func openIn(ctx context.Context, s storage.Store, step int64) (*Checkpoint, error) {
	c, save, err := openOnce(ctx, s, step)
	for range maxAttempts {
		if !errors.Is(err, ErrCorrupt) {
			break
		}
		before, damage := save, err
		if c, save, err = openOnce(ctx, s, step); save == before && errors.Is(err, ErrCorrupt) {
			return nil, damage
		}
	}
	return c, err
}

// openOnce opens the checkpoint of a step, and returns the name of its save, "" for one in one file.
func openOnce(ctx context.Context, s storage.Store, step int64) (c *Checkpoint, save string, err error) {
	plain, sharded, err := manifestIn(ctx, s, step)
	switch {
	case errors.Is(err, storage.ErrNotExist):
		return nil, "", none("open one of Manager.Steps", "no step %d in %s", step, s)
	case err != nil:
		return nil, "", err
	case plain != nil:
		c, err = openPlain(ctx, s, plain)
		return c, "", err
	}
	c, err = openSharded(ctx, s, sharded)
	return c, sharded.Save, err
}

// maxAttempts limits how often a reader lists the checkpoints again because another process removed
// the checkpoint that it was opening. Each attempt needs a new save of the other process.
const maxAttempts = 100

// Latest opens the checkpoint of the last step, as tf.train.latest_checkpoint names it. The error of
// an empty store matches [ErrNone]. Another process may save and remove checkpoints meanwhile.
// Latest returns an error for a damaged checkpoint; [Manager.LatestIntact] passes over it.
func (m *Manager) Latest(ctx context.Context) (*Checkpoint, error) {
	for range maxAttempts {
		steps, err := m.Steps(ctx)
		if err != nil {
			return nil, err
		}
		if len(steps) == 0 {
			break
		}
		c, err := m.Open(ctx, steps[len(steps)-1])
		if !errors.Is(err, ErrNone) {
			return c, err
		}
	}
	return nil, none("save one first", "%s is empty", m.store)
}

// LatestIntact reads checkpoints, the last first, and opens the first whose checksums match. passed
// has the errors of the later checkpoints that it passed over because they are damaged or cannot be
// read: log them. Another process may save and remove checkpoints meanwhile; a checkpoint that was
// removed is not damaged. LatestIntact does not pass over a checkpoint that a later version of this
// program wrote ([ErrVersion]), or one that this process may not read; it returns their error.
func (m *Manager) LatestIntact(ctx context.Context) (c *Checkpoint, passed []error, err error) {
	damaged := map[int64]error{}
	var steps []int64
	for range maxAttempts {
		if steps, err = m.Steps(ctx); err != nil {
			return nil, nil, err
		}
		passed = passed[:0]
		changed := false
		for _, step := range slices.Backward(steps) {
			if damaged[step] == nil {
				c, err := m.openIntact(ctx, step)
				if err == nil {
					return c, passed, nil
				}
				if !errors.Is(err, ErrCorrupt) && !errors.Is(err, ErrNone) {
					return nil, passed, err
				}
				now, listErr := m.Steps(ctx)
				if listErr != nil {
					return nil, passed, listErr
				}
				if changed = !slices.Equal(now, steps); changed {
					break // the checkpoint may have been removed, and there may be a later one
				}
				m.saw(step)
				damaged[step] = err
			}
			passed = append(passed, damaged[step])
		}
		if !changed {
			break
		}
	}
	return nil, passed, none("restore a copy of the store, or begin anew", "none of the %d in %s is intact", len(steps), m.store)
}

// openIntact opens the checkpoint of a step and compares all checksums.
func (m *Manager) openIntact(ctx context.Context, step int64) (*Checkpoint, error) {
	c, err := m.Open(ctx, step)
	if err != nil {
		return nil, err
	}
	if err := c.Verify(ctx); err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

// Wait waits for the save that is under way in the background and returns its error, a
// [*BackgroundError]. If ctx ends before, the error is its, and the save goes on. On process 0 it is
// over when the checkpoint is there; on the others, when their own parts are.
func (m *Manager) Wait(ctx context.Context) error {
	m.mu.Lock()
	over := m.background
	m.mu.Unlock()
	if over != nil {
		select {
		case <-over:
		case <-ctx.Done():
			return doing("wait for the save", "", ctx.Err())
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	err := m.err
	m.err = nil
	return err
}

// Close waits for the save under way, as Wait does, and ends the manager. To give the save up, call
// Abort before. A second Close does nothing.
func (m *Manager) Close() error {
	if m == nil || m.turn == nil {
		return nil
	}
	m.turn <- struct{}{}
	defer func() { <-m.turn }()
	m.mu.Lock()
	again := m.closed
	m.closed = true
	m.mu.Unlock()
	if again {
		return nil
	}
	err := m.Wait(context.Background())
	m.stopping()
	if m.memory != nil {
		staging.Give(m.memory)
		m.memory = nil
	}
	if m.opened {
		err = errors.Join(err, m.store.Close())
	}
	return err
}

// Abort gives the save under way up: its step has no checkpoint then, unless it was complete. No
// later save succeeds; Close the manager.
func (m *Manager) Abort() {
	if m != nil && m.stopping != nil {
		m.stopping()
	}
}

// Hurry has process 0 wait for the parts of the others for so long from now on at most, or for
// [ManagerOptions.Patience] if that ends before. A run that has lost a process, or is to end, calls
// it before Close. Of several calls that counts which gives the least time. What process 0 puts itself
// takes its time.
func (m *Manager) Hurry(patience time.Duration) {
	until := time.Now().Add(max(patience, 0)).UnixNano()
	for {
		before := m.hurry.Load()
		if before > 0 && before <= until || m.hurry.CompareAndSwap(before, until) {
			return
		}
	}
}

// hurried reports whether the time is over that Hurry gave.
func (m *Manager) hurried() bool {
	until := m.hurry.Load()
	return until > 0 && time.Now().UnixNano() >= until
}

// SaveTimes say how long a save took.
type SaveTimes struct {
	// Blocked is the time until Save returned, without the wait for the save before: the shards were
	// copied off the devices. Total is the time until it was over in the background; 0 while it is
	// under way.
	Blocked, Total time.Duration
}

// Took returns how long the last save took. It is zero before the first.
func (m *Manager) Took() SaveTimes {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.times
}

// take waits for the turn to change something.
func (m *Manager) take(ctx context.Context) error {
	select {
	case m.turn <- struct{}{}:
	case <-ctx.Done():
		return doing("wait for another call", "", ctx.Err())
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		<-m.turn
		return &errkind.Fault{Match: ErrClosed, Reason: "the manager of " + m.store.String() + " was closed", Hint: "use NewManager"}
	}
	return nil
}

// RemoveAfter removes the checkpoints of all steps after the given step, for a run that goes back to
// that step. A manifest that cannot be verified disowns nothing: it gets the name "checkpoint.json."
// with "unverified-" and its checksum, the tensors beside it stay, and the logger is told. RemoveAfter
// waits for the save under way. All processes may call it; process 0 removes.
func (m *Manager) RemoveAfter(ctx context.Context, step int64) error {
	if err := m.take(ctx); err != nil {
		return err
	}
	defer func() { <-m.turn }()
	if err := m.Wait(ctx); err != nil && ctx.Err() != nil {
		return err
	}
	if m.host == 0 {
		if err := m.unseen(ctx); err != nil {
			return err
		}
		if err := m.own(ctx); err != nil {
			return err
		}
		folders, err := m.folders(ctx)
		if err != nil {
			return err
		}
		for _, f := range slices.Backward(folders) {
			if f.step > step && f.manifest {
				if err := m.drop(ctx, f); err != nil {
					return err
				}
			}
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.last = min(m.last, step)
	return nil
}
