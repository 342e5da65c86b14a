package checkpoint

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/storage"
)

// ownerObject is the name of the object with the [ownerRecord] of the run that saves to the store.
const ownerObject = "owner.json"

// readOwner reads the ownerObject, which identifies the run that saves to the store. The result
// known is false if the object does not exist or is invalid.
func (m *Manager) readOwner(ctx context.Context) (r ownerRecord, known bool, err error) {
	data, err := readManifest(ctx, m.store, ownerObject)
	if errors.Is(err, storage.ErrNotExist) {
		return r, false, nil
	}
	return r, err == nil && len(data) <= maxOwnerBytes && json.Unmarshal(data, &r) == nil && r.ID != "", err
}

// ownerError reports that another run, which the record r describes, has saved a step to the store.
func (m *Manager) ownerError(r ownerRecord, step int64, running bool) error {
	return &OwnerError{Directory: m.store.String(), Host: r.Host, PID: r.PID, Since: r.Time, Step: step, Running: running}
}

// checkNewSteps returns an error if another run has saved a step after this run last listed the
// store. After the first save of this run it returns nil, because becomeOwner then detects other
// runs.
func (m *Manager) checkNewSteps(ctx context.Context) error {
	if m.host > 0 || m.isOwner.Load() || m.opts.TakeOver {
		return nil
	}
	steps, err := m.Steps(ctx)
	if err != nil || len(steps) == 0 || steps[len(steps)-1] <= m.lastKnownStep() {
		return err
	}
	r, _, err := m.readOwner(ctx)
	return errors.Join(err, m.ownerError(r, steps[len(steps)-1], r.isRunning(m.ownRecord)))
}

// becomeOwner registers this run as the owner of the store, which only one run may save to. It
// returns an error if another run saves to the store. The first call replaces the previous owner,
// unless the previous owner's process is still running on this host.
func (m *Manager) becomeOwner(ctx context.Context) error {
	r, known, err := m.readOwner(ctx)
	if err != nil {
		return err
	}
	running := known && r.isRunning(m.ownRecord)
	switch {
	case known && r.ID == m.ownRecord.ID:
		return nil
	case !m.opts.TakeOver && (m.isOwner.Load() || running):
		return m.ownerError(r, r.Step, running)
	}
	m.ownRecord.Time, m.ownRecord.Step = time.Now().UTC().Truncate(time.Second), m.lastKnownStep()
	data, err := json.Marshal(m.ownRecord)
	if err != nil {
		return err
	}
	if err := storage.PutBytes(ctx, m.store, ownerObject, data, storage.PutOptions{}); err != nil {
		return err
	}
	m.isOwner.Store(true)
	if sweeper, ok := m.store.(storage.Sweeper); ok {
		// Remove the temporary file of another run that ended while it wrote its record. It is in
		// no folder.
		err = sweeper.Sweep(ctx, "", func(name string) bool { return strings.Contains(name, "/") })
	}
	return err
}

// stepFolder lists the objects of a step in the store.
type stepFolder struct {
	step        int64
	hasManifest bool                      // the listing has a manifest
	saves       map[string][]storage.Info // objects of sharded saves, by the save's name
	voidSaves   map[string]bool           // saves that a verified void.json marks as removable
	// The verified manifest is in plain or sharded; both are nil without one. manifestErr is the error of
	// a manifest that cannot be verified.
	plain       *plainManifest
	sharded     *shardedManifest
	manifestErr error
}

// listFolders lists the steps in ascending order. It ignores objects whose names do not follow the
// naming scheme of this package, so that these objects are never removed.
func (m *Manager) listFolders(ctx context.Context) (folders []*stepFolder, err error) {
	infos, err := m.store.List(ctx, stepPrefix)
	if err != nil {
		return nil, wrapError("list steps", "", err)
	}
	byStep := map[int64]*stepFolder{}
	for _, info := range infos {
		elements := strings.Split(info.Name, "/")
		step, ok := parseStep(elements[0])
		manifest := len(elements) == 2 && elements[1] == manifestFile
		object := len(elements) == 3 && isSaveName(elements[1]) &&
			(elements[2] == voidFile || shardObjectName.MatchString(elements[2]))
		if !ok || !manifest && !object {
			continue
		}
		f := byStep[step]
		if f == nil {
			f = &stepFolder{step: step, saves: map[string][]storage.Info{}, voidSaves: map[string]bool{}}
			byStep[step] = f
			folders = append(folders, f)
		}
		if f.hasManifest = f.hasManifest || manifest; object {
			f.saves[elements[1]] = append(f.saves[elements[1]], info)
		}
	}
	slices.SortFunc(folders, func(a, b *stepFolder) int { return cmp.Compare(a.step, b.step) })
	return folders, nil
}

var shardObjectName = regexp.MustCompile(`^host-\d{4,}\.(json|safetensors)$`)

// removeObsolete removes checkpoints that the retention does not keep, and objects of interrupted
// saves. It ignores saves of this run with a greater number. An object is removed only if one of
// these manifests has a valid checksum, version and location and allows the removal:
//
//   - the manifest of its own save, if the retention does not keep the step;
//   - the manifest of its step, if the manifest names another save and that save is complete;
//   - the [voidManifest] in the same folder.
//
// All other objects remain, and removeObsolete logs a warning. A step with an unverified manifest
// does not count for the retention. pending is the name of a save for which other processes may
// still write objects, so its void.json remains.
func (m *Manager) removeObsolete(ctx context.Context, number int, retention Retention, pending string) error {
	folders, err := m.listFolders(ctx)
	if err != nil {
		return err
	}
	isRunning := func(save string) bool {
		suffix, ok := strings.CutPrefix(save, m.runName+"-")
		n, err := strconv.Atoi(suffix)
		return ok && (err != nil || n > number)
	}
	var errs []error
	var saved []savedStep
	folders = slices.DeleteFunc(folders, func(f *stepFolder) bool {
		maps.DeleteFunc(f.saves, func(save string, _ []storage.Info) bool { return isRunning(save) })
		err := m.readManifests(ctx, f)
		errs = append(errs, err)
		return err != nil
	})
	for _, f := range folders {
		if f.plain != nil || f.sharded != nil {
			entry := savedStep{step: f.step}
			if f.sharded != nil {
				entry.value, entry.hasValue = parseMetrics(f.sharded.Metrics)[retention.Metric]
			}
			saved = append(saved, entry)
		}
	}
	dropped := retention.stepsToRemove(saved)
	for _, f := range folders {
		err := m.removeIncomplete(ctx, f, pending)
		if err == nil && slices.Contains(dropped, f.step) {
			err = m.removeCheckpoint(ctx, f)
		}
		if link := (*PathError)(nil); errors.As(err, &link) { // objects behind a link do not belong to this store
			m.warnUnverified(f, "", &CorruptError{File: link.Path, Reason: "it cannot be removed", Err: err})
			err = nil
		}
		errs = append(errs, err)
	}
	if sweeper, ok := m.store.(storage.Sweeper); ok {
		errs = append(errs, sweeper.Sweep(ctx, stepPrefix, func(name string) bool {
			elements := strings.Split(name, "/")
			return len(elements) > 2 && isRunning(elements[1]) || isForeignFolder(name)
		}))
	}
	return errors.Join(errs...)
}

// isForeignFolder reports whether a folder was not created by this package. name is the folder's
// name, as a [storage.Sweeper] reports it.
func isForeignFolder(name string) bool {
	top, _, _ := strings.Cut(name, "/")
	_, ok := parseStep(top)
	return strings.HasSuffix(name, "/") && (!ok || strings.Count(name, "/") > 2)
}

// removeEmptyFolders removes step folders without files, which interrupted saves leave behind. It
// ignores folders that cannot be removed.
func (m *Manager) removeEmptyFolders(ctx context.Context) error {
	sweeper, ok := m.store.(storage.Sweeper)
	if !ok {
		return nil
	}
	err := sweeper.Sweep(ctx, stepPrefix, func(name string) bool {
		return !strings.HasSuffix(name, "/") ||
			isForeignFolder(name)
	})
	if err != nil {
		return wrapError("remove empty folders", "", err)
	}
	return nil
}

// readManifests reads and verifies the manifests of a step, which determine the objects that may be
// removed. It reads the step's manifest by name, because a listing may be outdated. It reads this
// manifest after the void.json files, because these are removed once the manifest exists.
func (m *Manager) readManifests(ctx context.Context, f *stepFolder) error {
	for save, objects := range f.saves {
		if !slices.ContainsFunc(objects, func(o storage.Info) bool { return o.Name == voidName(f.step, save) }) {
			continue
		}
		data, err := readManifest(ctx, m.store, voidName(f.step, save))
		if err != nil && !errors.Is(err, storage.ErrNotExist) && !errors.Is(err, ErrCorrupt) {
			return err
		}
		var v voidManifest
		f.voidSaves[save] = err == nil && decodeManifest(data, voidFormat, &v) == nil && v.Step == f.step && v.Save == save
	}
	var err error
	f.plain, f.sharded, err = readStepManifest(ctx, m.store, f.step)
	switch {
	case err == nil || errors.Is(err, storage.ErrNotExist):
	case errors.Is(err, ErrCorrupt), errors.Is(err, ErrVersion):
		f.manifestErr = err
	default:
		return err
	}
	return nil
}

// removeIncomplete removes the objects of a step that do not belong to the step's checkpoint. The
// parameter pending is documented at removeObsolete.
func (m *Manager) removeIncomplete(ctx context.Context, f *stepFolder, pending string) error {
	if f.manifestErr != nil {
		m.warnUnverified(f, "", f.manifestErr)
		return nil
	}
	for _, save := range slices.Sorted(maps.Keys(f.saves)) {
		switch {
		case f.sharded != nil && f.sharded.Save == save:
			if f.voidSaves[save] { // the save ended before it removed void.json
				if err := m.store.Remove(ctx, voidName(f.step, save)); err != nil {
					return err
				}
			}
			continue
		case !f.voidSaves[save] && !m.isComplete(ctx, f):
			m.warnUnverified(f, save, nil)
			continue
		}
		if err := m.removeSave(ctx, f.step, save, f.saves[save], save == pending); err != nil {
			return err
		}
		delete(f.saves, save)
	}
	return nil
}

// isComplete reports whether all tensor files that a step's manifest lists exist and have the
// listed sizes.
func (m *Manager) isComplete(ctx context.Context, f *stepFolder) bool {
	if f.sharded == nil {
		return false
	}
	c, err := openSharded(ctx, m.store, f.sharded)
	if err != nil {
		return false
	}
	defer c.Close()
	for host, o := range c.objects {
		name := shardsName(f.step, f.sharded.Save, host)
		if !slices.ContainsFunc(f.saves[f.sharded.Save], func(i storage.Info) bool {
			return i.Name == name &&
				i.Size == o.size
		}) {
			return false
		}
	}
	return true
}

// warnUnverified logs that an object is not removed because no verified manifest allows it. It logs
// each object only once.
func (m *Manager) warnUnverified(f *stepFolder, save string, manifestErr error) {
	subject, reason := fmt.Sprintf("checkpoint: %s/%s", m.store,
		stepName(f.step)), "it is kept, because its manifest cannot be verified"
	if save != "" {
		subject += "/" + save
	}
	if manifestErr == nil {
		reason = "it is kept, because no manifest shows whether it was a checkpoint"
	}
	err := &errkind.Fault{Op: subject, Reason: reason, Err: manifestErr,
		Hint:  "restore the manifest from a copy, or remove it",
		Class: errkind.KindOr(manifestErr, errkind.DataLossError)}
	if text := err.Error(); !m.loggedWarnings[text] {
		m.loggedWarnings[text] = true
		m.opts.Logger.Warn("checkpoint: an object that could not be verified is kept", "error", err)
	}
}

// markVoid writes void.json, which marks the objects of a save as removable.
func (m *Manager) markVoid(ctx context.Context, step int64, save string) error {
	data, err := encodeManifest(voidManifest{Format: voidFormat, Version: formatVersion, Step: step, Save: save})
	if err != nil {
		return err
	}
	return storage.PutBytes(ctx, m.store, voidName(step, save), data, storage.PutOptions{})
}

// removeStep removes the checkpoint of a step. If the manifest cannot be verified, removeStep only
// renames the manifest.
func (m *Manager) removeStep(ctx context.Context, f *stepFolder) error {
	if err := m.readManifests(ctx, f); err != nil {
		return err
	}
	if f.manifestErr == nil {
		if err := m.removeIncomplete(ctx, f, ""); err != nil {
			return err
		}
		return m.removeCheckpoint(ctx, f)
	}
	m.warnUnverified(f, "", f.manifestErr)
	data, err := readManifest(ctx, m.store, manifestName(f.step))
	if err != nil {
		return err
	}
	aside := fmt.Sprintf("%s.unverified-%s", manifestName(f.step), checksum(0).update(data))
	if err := storage.PutBytes(ctx, m.store, aside, data, storage.PutOptions{}); err != nil {
		return err
	}
	return m.store.Remove(ctx, manifestName(f.step))
}

// removeCheckpoint removes a checkpoint with a verified manifest. First it writes void.json, so
// that a later save can remove the rest if the removal is interrupted. Then it removes the manifest
// before the other objects, so that a partial checkpoint is never visible.
func (m *Manager) removeCheckpoint(ctx context.Context, f *stepFolder) error {
	if f.sharded != nil {
		if err := m.markVoid(ctx, f.step, f.sharded.Save); err != nil {
			return err
		}
	}
	if err := m.store.Remove(ctx, manifestName(f.step)); err != nil {
		return err
	}
	if f.sharded == nil {
		return m.store.Remove(ctx, stepName(f.step)+"/"+variablesFile)
	}
	return m.removeSave(ctx, f.step, f.sharded.Save, f.saves[f.sharded.Save], false)
}

// removeSave removes the objects of a save that has a void.json. It removes void.json last. If more
// is true, other processes may still write objects, so removeSave keeps void.json.
func (m *Manager) removeSave(ctx context.Context, step int64, save string, objects []storage.Info, more bool) error {
	for _, info := range objects {
		if info.Name != voidName(step, save) {
			if err := m.store.Remove(ctx, info.Name); err != nil {
				return err
			}
		}
	}
	if more {
		return nil
	}
	return m.store.Remove(ctx, voidName(step, save))
}
