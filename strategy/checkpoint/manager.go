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

// ManagerOptions configure a [Manager]. The zero value is for one process and keeps every checkpoint.
type ManagerOptions struct {
	// Strategy is the strategy of the saved variables. It may be nil for one process. If several
	// processes share the strategy, each process must have a manager for the same store and make
	// the same calls of Save.
	Strategy *strategy.TPUStrategy
	// Retention selects the checkpoints to keep. The zero value keeps all.
	Retention Retention
	// PartTimeout is the time that process 0 waits for the parts of the other processes after it has
	// saved its own. The default is ten minutes.
	PartTimeout time.Duration
	// TakeOver allows a save even if another run still saves to the store; see [OwnerError].
	TakeOver bool
	// Logger receives one warning for each item that remains in the store because no verified
	// manifest allows its removal. The attribute "error" has the item and the reason. The default
	// discards warnings.
	Logger *slog.Logger
}

// Manager keeps checkpoints in a folder or an object store, one for each saved step, like
// tf.train.CheckpointManager. Every process saves the data of its own devices, and a save continues in
// the background. A Manager is safe for concurrent use; saves run one at a time. Close it after use.
type Manager struct {
	store          storage.Store
	ownsStore      bool // the manager opened the store and closes it
	opts           ManagerOptions
	host           int
	hosts          int
	ownRecord      ownerRecord
	runName        string // random name of the run; process 0's name after the first save
	isNameShared   bool
	saveCount      int             // number of saves that were started
	lastStep       int64           // last step that this run knows of, or -1
	isOwner        atomic.Bool     // owner.json is this run's record
	loggedWarnings map[string]bool // warnings that were logged
	imageMemory    []byte          // memory of the last image
	cancel         context.CancelFunc
	lifetime       context.Context

	storeLock chan struct{} // held by a call that changes the store
	// waitLimit is the time, in Unix nanoseconds, at which process 0 stops waiting for the other
	// processes' parts. 0 means not set.
	waitLimit atomic.Int64

	mu        sync.Mutex
	saveDone  chan struct{} // closed when the running save ends; nil without one
	saveErr   error         // error of the last save, until it is returned
	durations SaveDurations
	closed    bool
}

// BackgroundError reports a save that failed after Save had returned.
type BackgroundError struct {
	// Dir is the path or URL of the store, and Step the step that was not saved.
	Dir  string
	Step int64
	Err  error
}

func (e *BackgroundError) Error() string {
	return errkind.Format(fmt.Sprintf("checkpoint: save step %d in %s", e.Step, e.Dir), "in the background", e.Err,
		"the earlier checkpoints are unchanged")
}

// Unwrap returns the cause.
func (e *BackgroundError) Unwrap() error { return e.Err }

// Kind returns the cause's kind, or RuntimeError.
func (e *BackgroundError) Kind() errkind.Kind { return errkind.KindOr(e.Err, errkind.RuntimeError) }

const defaultPartTimeout = 10 * time.Minute

// OpenManager returns a manager for the checkpoints at place. place is a folder, which OpenManager
// creates if necessary, or the URL of a store of package storage, such as gs://bucket/run, if the
// program imports the package for that store. OpenManager lists the saved steps, reads no
// checkpoint, and removes empty step folders of interrupted saves.
//
// Only one run at a time may save to a place: see [OwnerError].
func OpenManager(ctx context.Context, place string, opts ManagerOptions) (*Manager, error) {
	store, err := storage.Open(ctx, place)
	if err != nil {
		return nil, err
	}
	m, err := NewManager(ctx, store, opts)
	if err != nil {
		return nil, errors.Join(err, store.Close())
	}
	m.ownsStore = true
	return m, nil
}

// NewManager is like [OpenManager] for an open store, which the caller must close after the manager.
func NewManager(ctx context.Context, store storage.Store, opts ManagerOptions) (*Manager, error) {
	if store == nil {
		return nil, argumentError("manager", "open one with storage.Open", "no store")
	}
	if err := opts.Retention.validate(); err != nil {
		return nil, err
	}
	if opts.PartTimeout < 0 {
		return nil, argumentError("manager", "0 means ten minutes", "a PartTimeout of %v", opts.PartTimeout)
	}
	opts.PartTimeout = cmp.Or(opts.PartTimeout, defaultPartTimeout)
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	m := &Manager{store: store, opts: opts, hosts: 1, ownRecord: newOwnerRecord(), lastStep: -1,
		loggedWarnings: map[string]bool{}, storeLock: make(chan struct{}, 1)}
	if opts.Strategy != nil && opts.Strategy.NumProcesses() > 1 {
		m.host, m.hosts = opts.Strategy.Process(), opts.Strategy.NumProcesses()
	}
	m.runName = strings.ToLower(rand.Text()[:12])
	m.lifetime, m.cancel = context.WithCancel(context.Background())
	steps, err := m.Steps(ctx)
	if err != nil {
		return nil, err
	}
	m.updateLastStep(steps...)
	if err := m.removeEmptyFolders(ctx); err != nil {
		return nil, err
	}
	return m, nil
}

// updateLastStep records that the store contains the given steps. The manager remembers only the
// greatest step.
func (m *Manager) updateLastStep(steps ...int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, step := range steps {
		m.lastStep = max(m.lastStep, step)
	}
}

func (m *Manager) lastKnownStep() int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.lastStep
}

// Dir returns the store's path or URL.
func (m *Manager) Dir() string { return m.store.String() }

// Steps returns the saved steps in ascending order. It does not include interrupted saves.
func (m *Manager) Steps(ctx context.Context) ([]int64, error) {
	// A listing is not atomic. While another process saves a step and removes the only earlier one,
	// a listing may contain objects of both and neither manifest, but a later listing contains the
	// new step.
	for range 3 {
		steps, partial, err := m.listSteps(ctx)
		if err != nil || len(steps) > 0 || !partial {
			return steps, err
		}
	}
	return nil, nil
}

// listSteps extracts the saved steps from a listing of the store, in ascending order. The result
// partial is true if the listing contains objects other than manifests.
func (m *Manager) listSteps(ctx context.Context) (steps []int64, partial bool, err error) {
	all, err := m.store.List(ctx, stepPrefix)
	if err != nil {
		return nil, false, wrapError("list steps", "", err)
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

// Open opens the checkpoint of a step. It supports sharded checkpoints and the single-file
// checkpoints of earlier versions of this package. Open reads the manifests and no tensors. The
// error matches [ErrNotFound] if the step was not saved or was removed before it could be opened,
// and [ErrCorrupt] if Open detects damage. Close the checkpoint before the store.
func (m *Manager) Open(ctx context.Context, step int64) (*Checkpoint, error) {
	c, err := openStep(ctx, m.store, step)
	if err == nil {
		m.updateLastStep(step)
	}
	return c, err
}

// openStep opens the checkpoint of a step in a store. If another process replaces the checkpoint
// during the call, openStep opens the new checkpoint. If another process removes it, openStep
// returns an error that matches ErrNotFound.
func openStep(ctx context.Context, s storage.Store, step int64) (*Checkpoint, error) {
	c, save, err := openOnce(ctx, s, step)
	for range maxAttempts {
		if !errors.Is(err, ErrCorrupt) {
			break
		}
		previous, damage := save, err
		if c, save, err = openOnce(ctx, s, step); save == previous && errors.Is(err, ErrCorrupt) {
			return nil, damage
		}
	}
	return c, err
}

// openOnce opens the checkpoint of a step. save is the name of the save that wrote it, or "" for a
// single-file checkpoint.
func openOnce(ctx context.Context, s storage.Store, step int64) (c *Checkpoint, save string, err error) {
	plain, sharded, err := readStepManifest(ctx, s, step)
	switch {
	case errors.Is(err, storage.ErrNotExist):
		return nil, "", notFoundError("open one of Manager.Steps", "no step %d in %s", step, s)
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

// Latest opens the checkpoint of the last step, like tf.train.latest_checkpoint. For an empty store
// the error matches [ErrNotFound]. Another process may save and remove checkpoints concurrently.
// Latest returns an error for a damaged checkpoint; [Manager.LatestIntact] skips it.
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
		if !errors.Is(err, ErrNotFound) {
			return c, err
		}
	}
	return nil, notFoundError("save one first", "%s is empty", m.store)
}

// LatestIntact opens the last checkpoint without damage. It verifies checkpoints from the last step
// backward until it finds such a checkpoint. The result skipped has the errors of later checkpoints
// that are damaged; log these errors. Another process may save and remove checkpoints concurrently,
// and a removed checkpoint does not count as damaged. LatestIntact does not skip a checkpoint that
// needs a later version of this program ([ErrVersion]) or that this process has no permission to
// read. It returns the error of such a checkpoint.
func (m *Manager) LatestIntact(ctx context.Context) (c *Checkpoint, skipped []error, err error) {
	damaged := map[int64]error{}
	var steps []int64
	for range maxAttempts {
		if steps, err = m.Steps(ctx); err != nil {
			return nil, nil, err
		}
		skipped = skipped[:0]
		changed := false
		for _, step := range slices.Backward(steps) {
			if damaged[step] == nil {
				c, err := m.openIntact(ctx, step)
				if err == nil {
					return c, skipped, nil
				}
				if !errors.Is(err, ErrCorrupt) && !errors.Is(err, ErrNotFound) {
					return nil, skipped, err
				}
				now, listErr := m.Steps(ctx)
				if listErr != nil {
					return nil, skipped, listErr
				}
				if changed = !slices.Equal(now, steps); changed {
					break // the checkpoint may have been removed, and there may be a later one
				}
				m.updateLastStep(step)
				damaged[step] = err
			}
			skipped = append(skipped, damaged[step])
		}
		if !changed {
			break
		}
	}
	return nil, skipped, notFoundError("restore a copy of the store, or start a new run",
		"none of the %d in %s is intact", len(steps), m.store)
}

// openIntact opens the checkpoint of a step and verifies all its checksums.
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

// Wait waits for the running save and returns its error, a [*BackgroundError]. If ctx is done
// first, Wait returns the error of ctx and the save continues. On process 0 the save ends when the
// checkpoint is complete. On other processes it ends when they have saved their own part.
func (m *Manager) Wait(ctx context.Context) error {
	m.mu.Lock()
	done := m.saveDone
	m.mu.Unlock()
	if done != nil {
		select {
		case <-done:
		case <-ctx.Done():
			return wrapError("wait for the save", "", ctx.Err())
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	err := m.saveErr
	m.saveErr = nil
	return err
}

// Close waits for the running save, like Wait, and frees the manager's resources. To cancel the
// save, call Abort first. A second Close does nothing.
func (m *Manager) Close() error {
	if m == nil || m.storeLock == nil {
		return nil
	}
	m.storeLock <- struct{}{}
	defer func() { <-m.storeLock }()
	m.mu.Lock()
	wasClosed := m.closed
	m.closed = true
	m.mu.Unlock()
	if wasClosed {
		return nil
	}
	err := m.Wait(context.Background())
	m.cancel()
	if m.imageMemory != nil {
		staging.Free(m.imageMemory)
		m.imageMemory = nil
	}
	if m.ownsStore {
		err = errors.Join(err, m.store.Close())
	}
	return err
}

// Abort cancels the running save. The step then has no checkpoint, unless the save was already
// complete. Later saves fail. Call Close after Abort.
func (m *Manager) Abort() {
	if m != nil && m.cancel != nil {
		m.cancel()
	}
}

// LimitWait limits how long process 0 waits for the parts of the other processes: it gives up after
// timeout, counted from the call, or after [ManagerOptions.PartTimeout] if that is earlier. A run
// that has lost a process or must stop calls LimitWait before Close. After several calls the
// earliest limit applies. The limit does not apply to the writes of process 0 itself.
func (m *Manager) LimitWait(timeout time.Duration) {
	until := time.Now().Add(max(timeout, 0)).UnixNano()
	for {
		old := m.waitLimit.Load()
		if old > 0 && old <= until || m.waitLimit.CompareAndSwap(old, until) {
			return
		}
	}
}

func (m *Manager) isWaitOver() bool {
	until := m.waitLimit.Load()
	return until > 0 && time.Now().UnixNano() >= until
}

// SaveDurations reports how long the phases of a save took.
type SaveDurations struct {
	// Blocked is the time until Save returned, which includes the copy from the devices and
	// excludes the wait for the previous save. Total is the time until the save ended in the
	// background, or 0 while it is running.
	Blocked, Total time.Duration
}

// LastSaveDurations returns the durations of the last save, or zero values before the first save.
func (m *Manager) LastSaveDurations() SaveDurations {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.durations
}

// lock acquires storeLock, which a call must hold while it changes the store. It returns an error
// if ctx is done first or the manager is closed.
func (m *Manager) lock(ctx context.Context) error {
	select {
	case m.storeLock <- struct{}{}:
	case <-ctx.Done():
		return wrapError("wait for another call", "", ctx.Err())
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		<-m.storeLock
		return &errkind.Fault{Op: "checkpoint", Match: ErrClosed, Reason: "the manager of " + m.store.String() + " is closed",
			Hint: "close it after its last call, or open it again with OpenManager"}
	}
	return nil
}

// RemoveAfter removes the checkpoints of all steps after step, for a run that resumes from step. If
// a manifest cannot be verified, its checkpoint is not removed: the manifest is renamed to
// "checkpoint.json." followed by "unverified-" and its checksum, its tensors remain, and the logger
// receives a warning. RemoveAfter waits for the running save. All processes may call it; only
// process 0 removes checkpoints.
func (m *Manager) RemoveAfter(ctx context.Context, step int64) error {
	if err := m.lock(ctx); err != nil {
		return err
	}
	defer func() { <-m.storeLock }()
	if err := m.Wait(ctx); err != nil && ctx.Err() != nil {
		return err
	}
	if m.host == 0 {
		if err := m.checkNewSteps(ctx); err != nil {
			return err
		}
		if err := m.becomeOwner(ctx); err != nil {
			return err
		}
		folders, err := m.listFolders(ctx)
		if err != nil {
			return err
		}
		for _, f := range slices.Backward(folders) {
			if f.step > step && f.hasManifest {
				if err := m.removeStep(ctx, f); err != nil {
					return err
				}
			}
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.lastStep = min(m.lastStep, step)
	return nil
}
