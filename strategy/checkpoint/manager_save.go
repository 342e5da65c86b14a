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

// SaveOptions configure [Manager.Save]. The zero value is valid.
type SaveOptions struct {
	// Metadata is saved in the checkpoint and in the header of process 0's tensor file. It can
	// contain, for example, the position in the input data as JSON.
	Metadata map[string]string
	// Metrics select the best checkpoints; see [Retention].
	Metrics map[string]float64
}

// ErrNotRemoved matches the error of a save that saved its step but could not remove older
// checkpoints. The next save tries to remove them again.
var ErrNotRemoved = errkind.New(errkind.RuntimeError, "checkpoint: saved, but older checkpoints were not removed")

// metadataStep is the key of the step in a tensor file's header.
const metadataStep = "tpustrategy.step"

// saveJob is the state of one call of [Manager.Save] and of its background work.
type saveJob struct {
	manager *Manager
	step    int64
	// name is the name of the save: the run's name and number.
	name   string
	number int
	plan   *savePlan
	image  *hostImage
	opts   SaveOptions
	// manifestSent is true after an attempt to write the manifest. The store may have written it
	// although it reported an error, so that the tensor files must not be removed then.
	manifestSent bool
}

// Save saves a group of variables as the checkpoint of a step. It copies this process's shards from
// the devices to host memory of the same size and returns. The shards are written, and the
// checkpoint is completed, in the background. Save waits for the previous save. If a save fails in
// the background, the next call of Save, Wait or Close returns its error once, as a
// [*BackgroundError]. A Save that returns this error still saves its own step.
//
// All processes must call Save at the same point with groups of the same variables. Each process
// saves its own shards, and each part of a variable is saved by exactly one process. Process 0
// completes the checkpoint when the store contains the parts of all processes. The processes do not
// communicate, except that the first save broadcasts a name. A checkpoint exists when its manifest
// exists, which is written last. A later save removes files without a manifest.
//
// The step must be later than the last saved step; otherwise the error matches [ErrStepOrder]. ctx
// only limits Save itself. The background work continues until it is complete or Abort is called.
func (m *Manager) Save(ctx context.Context, step int64, g Group, opts SaveOptions) error {
	if err := m.lock(ctx); err != nil {
		return err
	}
	defer func() { <-m.storeLock }()
	previousErr := m.Wait(ctx)
	if ctx.Err() != nil && m.hosts == 1 {
		return errors.Join(previousErr, wrapError("save", fmt.Sprintf("step %d", step), ctx.Err()))
	}
	if err := m.startSave(ctx, step, g, opts); err != nil {
		return errors.Join(previousErr, err)
	}
	return previousErr
}

// startSave copies the shards from the devices and starts the goroutine that writes them.
func (m *Manager) startSave(ctx context.Context, step int64, g Group, opts SaveOptions) error {
	fail := func(err error) error { return wrapError("save", fmt.Sprintf("step %d", step), err) }
	start := time.Now()
	m.saveCount++
	if err := m.shareRunName(ctx); err != nil {
		return fail(err)
	}
	s := &saveJob{manager: m, step: step, number: m.saveCount, name: fmt.Sprintf("%s-%d", m.runName, m.saveCount),
		opts: opts}
	// An error of this process must not keep it from the calls that all processes make together.
	checkErr := m.checkSave(ctx, step, opts)
	metadata := map[string]string{metadataStep: fmt.Sprint(step)}
	if m.host == 0 {
		maps.Copy(metadata, opts.Metadata)
	}
	var err error
	if s.plan, err = newPlan(ctx, g, m.opts.Strategy, m.hosts); err != nil {
		return errors.Join(checkErr, err)
	}
	if s.image, m.imageMemory, err = newImage(s.plan, m.host, metadata, m.imageMemory); err != nil {
		return errors.Join(checkErr, err)
	}
	if checkErr != nil {
		_ = s.image.copyVariables(ctx, g, s.plan, m.opts.Strategy, m.host)
		return checkErr
	}
	done, lastStep := make(chan struct{}), m.lastKnownStep()
	m.mu.Lock()
	m.saveDone, m.durations, m.lastStep = done, SaveDurations{}, step
	m.mu.Unlock()
	go func() {
		defer close(done)
		err := s.execute(m.lifetime)
		if err == nil || errors.Is(err, ErrNotRemoved) {
			m.writeProgressFile(step)
		}
		m.mu.Lock()
		defer m.mu.Unlock()
		m.durations.Total = time.Since(start)
		if err != nil && !s.manifestSent { // the step may be saved again
			m.lastStep = lastStep
		}
		if failed := s.image.abortError(); err != nil && (failed == nil || !errors.Is(err, failed)) {
			m.saveErr = &BackgroundError{Dir: m.store.String(), Step: step, Err: err}
		}
	}()
	if err := s.image.copyVariables(ctx, g, s.plan, m.opts.Strategy, m.host); err != nil {
		s.image.abort(err)
		<-done
		return fail(err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.durations.Blocked = time.Since(start)
	return nil
}

// progressFileVariable is the environment variable with the name of the progress file.
const progressFileVariable = "TPUSTRATEGY_SAVED"

func (m *Manager) writeProgressFile(step int64) {
	path := os.Getenv(progressFileVariable)
	if path == "" {
		return
	}
	if err := files.Replace(path, func(w io.Writer) error { _, err := fmt.Fprintln(w, step); return err }); err != nil {
		m.opts.Logger.Warn("checkpoint: the progress file cannot be written", "step", step, "error", err)
	}
}

// shareRunName sets the run's name to the name on process 0. Only the first call communicates.
func (m *Manager) shareRunName(ctx context.Context) error {
	if m.isNameShared || m.hosts == 1 {
		return nil
	}
	name, err := m.opts.Strategy.BroadcastBytes(ctx, "checkpoint: the name of the run", []byte(m.runName))
	if err != nil {
		return err
	}
	m.runName, m.isNameShared = string(name), true
	return nil
}

// checkSave returns an error if a checkpoint of the step cannot be saved.
func (m *Manager) checkSave(ctx context.Context, step int64, opts SaveOptions) error {
	if step < 0 {
		return argumentError("save", "count steps from 0", "step %d", step)
	}
	if err := m.lifetime.Err(); err != nil {
		return wrapError("save", fmt.Sprintf("step %d after Abort", step), err)
	}
	if known := m.lastKnownStep(); step <= known {
		return &errkind.Fault{Match: ErrStepOrder, Reason: fmt.Sprintf("step %d, %s has step %d", step, m.store, known),
			Hint: "save later steps, or call RemoveAfter"}
	}
	if _, ok := opts.Metadata[metadataStep]; ok {
		return argumentError("save", "use another name", "metadata entry %q is reserved", metadataStep)
	}
	return m.checkNewSteps(ctx)
}

// execute writes this process's shards. On process 0 it then completes the checkpoint and removes
// obsolete checkpoints.
func (s *saveJob) execute(ctx context.Context) error {
	m := s.manager
	var manifest []byte
	// The save is void until the manifest exists. Every process writes void.json, because any process may
	// be the last one to run.
	err := m.markVoid(ctx, s.step, s.name)
	if err == nil {
		manifest, err = s.writeShards(ctx)
	}
	if err != nil {
		s.reportFailure(manifest, err)
	}
	if m.host > 0 {
		return err
	}
	if err == nil {
		err = s.complete(ctx, manifest)
	}
	if err != nil {
		if m.lifetime.Err() == nil && !errors.Is(err, ErrBusy) {
			upTo := s.number
			if s.manifestSent {
				upTo--
			}
			late := ""
			if m.hosts > 1 {
				late = s.name
			}
			_ = m.removeObsolete(ctx, upTo, Retention{}, late) // a later save removes the remaining files
		}
		return err
	}
	err = m.store.Remove(ctx, voidName(s.step, s.name))
	if err = errors.Join(err, m.removeObsolete(ctx, s.number, m.opts.Retention, "")); err != nil {
		return &errkind.Fault{Match: ErrNotRemoved, Err: err, Hint: "the next save tries again"}
	}
	return nil
}

// writeShards writes this process's tensor file and its manifest, and returns the manifest.
func (s *saveJob) writeShards(ctx context.Context) (manifest []byte, err error) {
	m := s.manager
	group, within := errgroup.WithContext(ctx)
	group.Go(func() error {
		return m.store.Put(within, shardsName(s.step, s.name, m.host), storage.PutOptions{Size: int64(len(s.image.memory))},
			func(w io.Writer) error { return s.image.writeTo(within, w) })
	})
	group.Go(func() error { return s.image.computeChecksums(within) })
	if err := group.Wait(); err != nil {
		return nil, err
	}
	p := s.newPartManifest()
	p.Bytes, p.Regions = int64(len(s.image.memory)), s.image.partRegions()
	p.HeaderBytes, p.HeaderCRC32C = int64(s.image.headerSize), checksum(0).update(s.image.memory[:s.image.headerSize])
	if manifest, err = encodeManifest(p); err != nil {
		return nil, err
	}
	return manifest, s.writePart(ctx, manifest)
}

// Limits of writePart. It retries the write because process 0 waits for the manifest.
const (
	partAttempts   = 5
	partRetryDelay = 100 * time.Millisecond
)

// writePart writes the manifest of this process's tensor file. It repeats a write that fails.
func (s *saveJob) writePart(ctx context.Context, manifest []byte) (err error) {
	for attempt := range partAttempts {
		if err = storage.PutBytes(ctx, s.manager.store, partName(s.step, s.name, s.manager.host), manifest,
			storage.PutOptions{}); err == nil {
			return nil
		}
		select {
		case <-time.After(partRetryDelay << attempt):
		case <-ctx.Done():
			return err
		}
	}
	return err
}

func (s *saveJob) newPartManifest() *partManifest {
	return &partManifest{Format: partFormat, Version: formatVersion, Step: s.step, Save: s.name, Host: s.manager.host,
		Hosts: s.manager.hosts, Regions: []partRegion{}}
}

// reportFailure tries to notify process 0 that this process cannot save its shards. It writes a
// manifest that contains the error.
func (s *saveJob) reportFailure(manifest []byte, cause error) {
	if s.manager.host == 0 || manifest != nil {
		return
	}
	p := s.newPartManifest()
	p.Failed = cause.Error()
	if data, err := encodeManifest(p); err == nil {
		ctx, done := context.WithTimeout(context.Background(), time.Minute)
		defer done()
		_ = s.writePart(ctx, data)
	}
}

// complete waits for the tensor files of all processes. Then it writes the checkpoint's manifest,
// which makes the checkpoint visible.
func (s *saveJob) complete(ctx context.Context, ownManifest []byte) error {
	m := s.manager
	manifest := &shardedManifest{Format: shardedFormat, Version: formatVersion, Step: s.step, Metadata: s.opts.Metadata,
		Save: s.name, BlockBytes: blockBytes,
		Hosts: make([]hostPart, m.hosts), Variables: s.plan.values, Metrics: formatMetrics(s.opts.Metrics)}
	if manifest.Variables == nil {
		manifest.Variables = []shardedValue{}
	}
	manifest.Hosts[0] = hostPart{int64(len(ownManifest)), checksum(0).update(ownManifest)}
	if err := s.waitForParts(ctx, manifest.Hosts); err != nil {
		return err
	}
	data, err := encodeManifest(manifest)
	if err != nil {
		return err
	}
	if err := m.becomeOwner(ctx); err != nil {
		return err
	}
	s.manifestSent = true
	err = storage.PutBytes(ctx, m.store, manifestName(s.step), data, storage.PutOptions{IfAbsent: true})
	if errors.Is(err, storage.ErrExists) {
		// After a lost response the existing manifest is this save's own.
		if existing, readErr := readManifest(ctx, m.store, manifestName(s.step)); readErr != nil ||
			!bytes.Equal(existing, data) {
			return &OwnerError{Directory: m.store.String(), Step: s.step}
		}
		return nil
	}
	return err
}

// missingPartsError reports that some processes did not write their tensor files in time. cause is
// the failure that one of these processes reported, or nil.
func (s *saveJob) missingPartsError(hosts []int, waited time.Duration, cause error) error {
	names := make([]string, len(hosts))
	for i, h := range hosts {
		names[i] = fmt.Sprint(h)
	}
	return &errkind.Fault{Match: ErrMissingParts, Op: fmt.Sprintf("checkpoint: step %d", s.step), Err: cause,
		Reason: fmt.Sprintf("no part of process %s after %v", strings.Join(names, ", "), waited.Round(time.Millisecond)),
		Hint:   "see the error of that process; the step was not saved"}
}

// waitForParts waits until the tensor files of all processes are in the store. For each file it
// sets the element of hosts with the number of the process. It requests each manifest by name
// because a listing of the store may be outdated.
func (s *saveJob) waitForParts(ctx context.Context, hosts []hostPart) error {
	m, start := s.manager, time.Now()
	delay := 2 * time.Millisecond
	var lastErr error
	for {
		var missing []int
		for host := 1; host < m.hosts; host++ {
			if hosts[host].Bytes > 0 {
				continue
			}
			part, err := s.readHostPart(ctx, host)
			switch {
			case err == nil && part.Bytes > 0:
				hosts[host] = part
			case ctx.Err() != nil:
				return ctx.Err()
			case err == nil:
				missing = append(missing, host)
			case errors.Is(err, ErrMissingParts):
				return err
			default:
				missing, lastErr = append(missing, host), err
			}
		}
		if len(missing) == 0 {
			return nil
		}
		if waited := time.Since(start); waited >= m.opts.PartTimeout || m.isWaitOver() {
			return s.missingPartsError(missing, waited, lastErr)
		}
		select {
		case <-time.After(min(delay, max(m.opts.PartTimeout-time.Since(start), time.Millisecond))):
		case <-ctx.Done():
			return ctx.Err()
		}
		delay = min(2*delay, time.Second)
	}
}

// readHostPart reads the manifest of a process's tensor file and checks the size of the file. It
// returns the zero hostPart if the manifest or the file does not exist yet.
func (s *saveJob) readHostPart(ctx context.Context, host int) (part hostPart, err error) {
	data, err := readManifest(ctx, s.manager.store, partName(s.step, s.name, host))
	if errors.Is(err, storage.ErrNotExist) {
		return hostPart{}, nil
	}
	if err != nil {
		return hostPart{}, err
	}
	p, err := parsePart(data, s.step, s.name, host, s.manager.hosts)
	if err != nil {
		return hostPart{}, err
	}
	if p.Failed != "" {
		return hostPart{}, s.missingPartsError([]int{host}, 0, errkind.New(errkind.UnavailableError, p.Failed))
	}
	o, err := s.manager.store.Open(ctx, shardsName(s.step, s.name, host))
	if errors.Is(err, storage.ErrNotExist) {
		return hostPart{}, nil
	}
	if err != nil {
		return hostPart{}, err
	}
	if o.Size() != p.Bytes {
		err = lengthError(o.Size(), p.Bytes)
	}
	return hostPart{int64(len(data)), checksum(0).update(data)}, errors.Join(err, o.Close())
}
