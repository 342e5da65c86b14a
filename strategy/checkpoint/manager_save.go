package checkpoint

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/internal/files"
	"github.com/tpustrategy/tpustrategy/storage"
)

// SaveOptions describe a checkpoint to save. The zero value is valid.
type SaveOptions struct {
	// Metadata is saved in the checkpoint and in the header of process 0's tensor file. It can
	// contain, for example, the position in the input data as JSON.
	Metadata map[string]string
	// Metrics select the best checkpoints; see [Retention].
	Metrics map[string]float64
}

// ErrNotRemoved matches the error of a save that saved its step but could not remove older checkpoints.
// The next save tries to remove them again.
var ErrNotRemoved = errkind.New(errkind.RuntimeError, "checkpoint: saved, but older ones stay")

// metadataStep is the key of the step in a tensor file's header.
const metadataStep = "tpustrategy.step"

// saveJob is the state of one save.
type saveJob struct {
	m    *Manager
	step int64
	// name is the name of the save: the run's name and number.
	name   string
	number int
	plan   *plan
	image  *image
	opts   SaveOptions
	// unclear is true once the manifest was sent. A service may store it although it reported an
	// error, so that the parts must not be removed then.
	unclear bool
}

// Save saves a group of variables as the checkpoint of a step. It copies this process's shards from
// the devices to host memory of the same size and returns. The shards are written, and the
// checkpoint is completed, in the background. Save waits for the previous save. The error of a save
// in the background, a [*BackgroundError], is returned once: by the next Save, Wait or Close. A
// Save that returns this error still saves its own step.
//
// All processes must call Save at the same point with groups of the same variables. Each process
// saves its own shards; over all processes each box of a variable is saved once. Process 0
// completes the checkpoint when the store contains the parts of all processes. The processes do not
// communicate, except that the first save broadcasts a name. A checkpoint exists when its manifest
// exists, which is written last. A later save removes files without a manifest.
//
// The step must be later than the last saved step; otherwise the error matches [ErrStep]. ctx only
// limits Save itself. The background work continues until it is complete or Abort is called.
func (m *Manager) Save(ctx context.Context, step int64, g Group, opts SaveOptions) error {
	if err := m.take(ctx); err != nil {
		return err
	}
	defer func() { <-m.turn }()
	before := m.Wait(ctx)
	if ctx.Err() != nil && m.hosts == 1 {
		return errors.Join(before, doing("save", fmt.Sprintf("step %d", step), ctx.Err()))
	}
	if err := m.begin(ctx, step, g, opts); err != nil {
		return errors.Join(before, err)
	}
	return before
}

// begin copies the shards from the devices and starts the background work.
func (m *Manager) begin(ctx context.Context, step int64, g Group, opts SaveOptions) error {
	fail := func(err error) error { return doing("save", fmt.Sprintf("step %d", step), err) }
	began := time.Now()
	m.saves++
	if err := m.agree(ctx); err != nil {
		return fail(err)
	}
	s := &saveJob{m: m, step: step, number: m.saves, name: fmt.Sprintf("%s-%d", m.run, m.saves), opts: opts}
	// An error of this process must not keep it from the calls that all processes make together.
	refused := m.refuse(ctx, step, opts)
	metadata := map[string]string{metadataStep: fmt.Sprint(step)}
	if m.host == 0 {
		maps.Copy(metadata, opts.Metadata)
	}
	var err error
	if s.plan, err = planOf(ctx, g, m.opts.Strategy, m.hosts); err != nil {
		return errors.Join(refused, err)
	}
	if s.image, m.memory, err = newImage(s.plan, m.host, metadata, m.memory); err != nil {
		return errors.Join(refused, err)
	}
	if refused != nil {
		_ = s.image.fill(ctx, g, s.plan, m.opts.Strategy, m.host)
		return refused
	}
	over, known := make(chan struct{}), m.known()
	m.mu.Lock()
	m.background, m.times, m.last = over, SaveTimes{}, step
	m.mu.Unlock()
	go func() {
		defer close(over)
		err := s.run(m.lives)
		if err == nil || errors.Is(err, ErrNotRemoved) {
			m.tell(step)
		}
		m.mu.Lock()
		defer m.mu.Unlock()
		m.times.Total = time.Since(began)
		if err != nil && !s.unclear { // the step may be saved again
			m.last = known
		}
		if failed := s.image.failure(); err != nil && (failed == nil || !errors.Is(err, failed)) {
			m.err = &BackgroundError{Place: m.store.String(), Step: step, Err: err}
		}
	}()
	if err := s.image.fill(ctx, g, s.plan, m.opts.Strategy, m.host); err != nil {
		s.image.fail(err)
		<-over
		return fail(err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.times.Blocked = time.Since(began)
	return nil
}

// savedFile is the environment variable with the name of the progress file; see the package
// comment.
const savedFile = "TPUSTRATEGY_SAVED"

// tell writes the saved step to the progress file.
func (m *Manager) tell(step int64) {
	path := os.Getenv(savedFile)
	if path == "" {
		return
	}
	if err := files.Replace(path, func(w io.Writer) error { _, err := fmt.Fprintln(w, step); return err }); err != nil {
		m.opts.Logger.Warn("checkpoint: who started this program is not told of the save", "step", step, "error", err)
	}
}

// agree broadcasts the name of process 0's run to all processes, once.
func (m *Manager) agree(ctx context.Context) error {
	if m.agreed || m.hosts == 1 {
		return nil
	}
	name, err := m.opts.Strategy.BroadcastBytes(ctx, "checkpoint: the name of the run", []byte(m.run))
	if err != nil {
		return err
	}
	m.run, m.agreed = string(name), true
	return nil
}

// refuse returns an error if the step cannot be saved.
func (m *Manager) refuse(ctx context.Context, step int64, opts SaveOptions) error {
	if step < 0 {
		return wrong("save", "count steps from 0", "step %d", step)
	}
	if err := m.lives.Err(); err != nil {
		return doing("save", fmt.Sprintf("step %d after Abort", step), err)
	}
	if known := m.known(); step <= known {
		return &errkind.Fault{Match: ErrStep, Reason: fmt.Sprintf("step %d, %s has step %d", step, m.store, known), Hint: "save later steps, or call RemoveAfter"}
	}
	if _, ok := opts.Metadata[metadataStep]; ok {
		return wrong("save", "use another name", "metadata entry %q is reserved", metadataStep)
	}
	return m.unseen(ctx)
}

// run writes this process's part to the store. On process 0 it also completes the checkpoint.
func (s *saveJob) run(ctx context.Context) error {
	m := s.m
	var part []byte
	// The save is void until the manifest exists. Each process writes void.json, because any may be
	// the last.
	err := m.void(ctx, s.step, s.name)
	if err == nil {
		part, err = s.put(ctx)
	}
	if err != nil {
		s.unsave(part, err)
	}
	if m.host > 0 {
		return err
	}
	if err == nil {
		err = s.complete(ctx, part)
	}
	if err != nil {
		if m.lives.Err() == nil && !errors.Is(err, ErrBusy) {
			upTo := s.number
			if s.unclear {
				upTo--
			}
			late := ""
			if m.hosts > 1 {
				late = s.name
			}
			_ = m.tidy(ctx, upTo, Retention{}, late) // a later save removes the remaining files
		}
		return err
	}
	err = m.store.Remove(ctx, voidName(s.step, s.name))
	if err = errors.Join(err, m.tidy(ctx, s.number, m.opts.Retention, "")); err != nil {
		return &errkind.Fault{Match: ErrNotRemoved, Err: err, Hint: "the next save tries again"}
	}
	return nil
}

// put writes the tensor file and its manifest, and returns the manifest.
func (s *saveJob) put(ctx context.Context) (part []byte, err error) {
	m := s.m
	group, within := errgroup.WithContext(ctx)
	group.Go(func() error {
		return m.store.Put(within, shardsName(s.step, s.name, m.host), storage.PutOptions{Size: int64(len(s.image.memory))},
			func(w io.Writer) error { return s.image.write(within, w) })
	})
	group.Go(func() error { return s.image.sum(within) })
	if err := group.Wait(); err != nil {
		return nil, err
	}
	p := s.describe()
	p.Bytes, p.Regions = int64(len(s.image.memory)), s.image.part()
	p.HeaderBytes, p.HeaderCRC32C = int64(s.image.header), checksum(0).plus(s.image.memory[:s.image.header])
	if part, err = seal(p); err != nil {
		return nil, err
	}
	return part, s.putPart(ctx, part)
}

// Process 0 waits for the manifest of a part, also for one that reports a failure, so that its
// write is retried.
const (
	partTries = 5
	partPause = 100 * time.Millisecond
)

func (s *saveJob) putPart(ctx context.Context, part []byte) (err error) {
	for try := range partTries {
		if err = storage.PutBytes(ctx, s.m.store, partName(s.step, s.name, s.m.host), part, storage.PutOptions{}); err == nil {
			return nil
		}
		select {
		case <-time.After(partPause << try):
		case <-ctx.Done():
			return err
		}
	}
	return err
}

func (s *saveJob) describe() *partManifest {
	return &partManifest{Format: partFormat, Version: formatVersion, Step: s.step, Save: s.name, Host: s.m.host, Hosts: s.m.hosts, Regions: []partRegion{}}
}

// unsave tries to notify process 0 that this process will not save its part.
func (s *saveJob) unsave(part []byte, cause error) {
	if s.m.host == 0 || part != nil {
		return
	}
	p := s.describe()
	p.Failed = cause.Error()
	if data, err := seal(p); err == nil {
		ctx, done := context.WithTimeout(context.Background(), time.Minute)
		defer done()
		_ = s.putPart(ctx, data)
	}
}

// complete waits for the parts of all processes and writes the manifest.
func (s *saveJob) complete(ctx context.Context, mine []byte) error {
	m := s.m
	all := &shardedManifest{Format: shardedFormat, Version: formatVersion, Step: s.step, Metadata: s.opts.Metadata, Save: s.name, BlockBytes: blockBytes,
		Hosts: make([]hostPart, m.hosts), Variables: s.plan.values, Metrics: textOf(s.opts.Metrics)}
	if all.Variables == nil {
		all.Variables = []shardedValue{}
	}
	all.Hosts[0] = hostPart{int64(len(mine)), checksum(0).plus(mine)}
	if err := s.collect(ctx, all.Hosts); err != nil {
		return err
	}
	data, err := seal(all)
	if err != nil {
		return err
	}
	if err := m.own(ctx); err != nil {
		return err
	}
	s.unclear = true
	err = storage.PutBytes(ctx, m.store, manifestName(s.step), data, storage.PutOptions{IfAbsent: true})
	if errors.Is(err, storage.ErrExists) {
		// After a lost response the existing manifest is this save's own.
		if there, reading := readSmall(ctx, m.store, manifestName(s.step)); reading != nil || !bytes.Equal(there, data) {
			return &OwnerError{Directory: m.store.String(), Step: s.step}
		}
		return nil
	}
	return err
}

// noPart returns an error for the processes, ascending, whose parts process 0 did not receive in
// time. cause is the failure that a process reported, or nil.
func (s *saveJob) noPart(hosts []int, waited time.Duration, cause error) error {
	names := make([]string, len(hosts))
	for i, h := range hosts {
		names[i] = fmt.Sprint(h)
	}
	return &errkind.Fault{Match: ErrNoPart, Op: fmt.Sprintf("checkpoint: step %d", s.step), Err: cause,
		Reason: fmt.Sprintf("no part of process %s after %v", strings.Join(names, ", "), waited.Round(time.Millisecond)),
		Hint:   "see what that process says; the step was not saved"}
}

// collect waits until the parts of all processes are in the store. It requests each part by name
// because a listing may be outdated.
func (s *saveJob) collect(ctx context.Context, hosts []hostPart) error {
	m, began := s.m, time.Now()
	pause := 2 * time.Millisecond
	var failing error
	for {
		var missing []int
		for host := 1; host < m.hosts; host++ {
			if hosts[host].Bytes > 0 {
				continue
			}
			part, err := s.partOf(ctx, host)
			switch {
			case err == nil && part.Bytes > 0:
				hosts[host] = part
			case ctx.Err() != nil:
				return ctx.Err()
			case err == nil:
				missing = append(missing, host)
			case errors.Is(err, ErrNoPart):
				return err
			default:
				missing, failing = append(missing, host), err
			}
		}
		if len(missing) == 0 {
			return nil
		}
		if waited := time.Since(began); waited >= m.opts.PartTimeout || m.hurried() {
			return s.noPart(missing, waited, failing)
		}
		select {
		case <-time.After(min(pause, max(m.opts.PartTimeout-time.Since(began), time.Millisecond))):
		case <-ctx.Done():
			return ctx.Err()
		}
		pause = min(2*pause, time.Second)
	}
}

// partOf reads the manifest of a process's part and checks the size of its tensor file. If the part
// does not exist yet, partOf returns the zero hostPart.
func (s *saveJob) partOf(ctx context.Context, host int) (part hostPart, err error) {
	data, err := readSmall(ctx, s.m.store, partName(s.step, s.name, host))
	if errors.Is(err, storage.ErrNotExist) {
		return hostPart{}, nil
	}
	if err != nil {
		return hostPart{}, err
	}
	p, err := parsePart(data, s.step, s.name, host, s.m.hosts)
	if err != nil {
		return hostPart{}, err
	}
	if p.Failed != "" {
		return hostPart{}, s.noPart([]int{host}, 0, errkind.New(errkind.UnavailableError, p.Failed))
	}
	o, err := s.m.store.Open(ctx, shardsName(s.step, s.name, host))
	if errors.Is(err, storage.ErrNotExist) {
		return hostPart{}, nil
	}
	if err != nil {
		return hostPart{}, err
	}
	if o.Size() != p.Bytes {
		err = errLength(o.Size(), p.Bytes)
	}
	return hostPart{int64(len(data)), checksum(0).plus(data)}, errors.Join(err, o.Close())
}
