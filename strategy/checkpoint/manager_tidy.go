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

// ownerObject holds what is known of the run that saves to a store: two do not mix.
const ownerObject = "owner.json"

// owner reads the record of the run that saves to the store; known is false without a whole one.
func (m *Manager) owner(ctx context.Context) (r ownerRecord, known bool, err error) {
	data, err := readSmall(ctx, m.store, ownerObject)
	if errors.Is(err, storage.ErrNotExist) {
		return r, false, nil
	}
	return r, err == nil && len(data) <= maxRecord && json.Unmarshal(data, &r) == nil && r.ID != "", err
}

// conflict is the error of a run that saved where this one does not expect it.
func (m *Manager) conflict(r ownerRecord, step int64, running bool) error {
	return &OwnerError{Directory: m.store.String(), Host: r.Host, PID: r.PID, Since: r.Time, Step: step, Running: running}
}

// unseen returns an error if another run has saved a step since this one looked, before this one has
// saved.
func (m *Manager) unseen(ctx context.Context) error {
	if m.host > 0 || m.owned.Load() || m.opts.TakeOver {
		return nil
	}
	steps, err := m.Steps(ctx)
	if err != nil || len(steps) == 0 || steps[len(steps)-1] <= m.known() {
		return err
	}
	r, _, err := m.owner(ctx)
	return errors.Join(err, m.conflict(r, steps[len(steps)-1], r.runs(m.self)))
}

// own returns an error if another run saves to the store. The first call makes the store this
// run's, unless that run's process still runs on this machine.
func (m *Manager) own(ctx context.Context) error {
	r, known, err := m.owner(ctx)
	if err != nil {
		return err
	}
	running := known && r.runs(m.self)
	switch {
	case known && r.ID == m.self.ID:
		return nil
	case !m.opts.TakeOver && (m.owned.Load() || running):
		return m.conflict(r, r.Step, running)
	}
	m.self.Time, m.self.Step = time.Now().UTC().Truncate(time.Second), m.known()
	data, err := json.Marshal(m.self)
	if err != nil {
		return err
	}
	if err := storage.PutBytes(ctx, m.store, ownerObject, data, storage.PutOptions{}); err != nil {
		return err
	}
	m.owned.Store(true)
	if sweeper, ok := m.store.(storage.Sweeper); ok {
		// What is left of another run's record, which ended in the middle of it; it stands in no folder.
		err = sweeper.Sweep(ctx, "", func(name string) bool { return strings.Contains(name, "/") })
	}
	return err
}

// stepFolder is what a store has of a step, and what may be believed of it.
type stepFolder struct {
	step     int64
	manifest bool // it is listed
	// saves are the objects of saves in shards, by the save's name.
	saves map[string][]storage.Info
	// void are the saves that are disowned by a verified statement.
	void map[string]bool
	// plain or sharded is the manifest, if it is verified; both are nil without one. wrong is what is
	// wrong with one that is not.
	plain   *manifest
	sharded *shardedManifest
	wrong   error
}

// folders lists the steps, ascending. What is neither a manifest nor of a save in shards is not
// listed, and so never removed.
func (m *Manager) folders(ctx context.Context) (all []*stepFolder, err error) {
	infos, err := m.store.List(ctx, stepPrefix)
	if err != nil {
		return nil, doing("list steps", "", err)
	}
	byStep := map[int64]*stepFolder{}
	for _, info := range infos {
		elements := strings.Split(info.Name, "/")
		step, ok := parseStep(elements[0])
		manifest := len(elements) == 2 && elements[1] == manifestFile
		object := len(elements) == 3 && saveName(elements[1]) && (elements[2] == voidFile || shardObject.MatchString(elements[2]))
		if !ok || !manifest && !object {
			continue
		}
		f := byStep[step]
		if f == nil {
			f = &stepFolder{step: step, saves: map[string][]storage.Info{}, void: map[string]bool{}}
			byStep[step] = f
			all = append(all, f)
		}
		if f.manifest = f.manifest || manifest; object {
			f.saves[elements[1]] = append(f.saves[elements[1]], info)
		}
	}
	slices.SortFunc(all, func(a, b *stepFolder) int { return cmp.Compare(a.step, b.step) })
	return all, nil
}

var shardObject = regexp.MustCompile(`^host-\d{4,}\.(json|safetensors)$`)

// tidy removes the checkpoints that are not kept, and what interrupted saves left, of this run those
// up to a number. An object is removed only if a statement whose checksum, version and place are
// right disowns it:
//
//   - the manifest of its own save, which says of which step it is, where a retention drops the step;
//   - the manifest of its step, which names another save, and that save is whole;
//   - the [voidManifest] beside it.
//
// Everything else stays, and the logger is told. A step whose manifest is not verified counts for
// nothing in the retention, so that as many stay as it says. What other processes may still put of
// the save late goes later, so that it remains disowned.
func (m *Manager) tidy(ctx context.Context, number int, keep Retention, late string) error {
	all, err := m.folders(ctx)
	if err != nil {
		return err
	}
	live := func(save string) bool {
		mine, ok := strings.CutPrefix(save, m.run+"-")
		n, err := strconv.Atoi(mine)
		return ok && (err != nil || n > number)
	}
	var errs []error
	var saved []savedStep
	all = slices.DeleteFunc(all, func(f *stepFolder) bool {
		maps.DeleteFunc(f.saves, func(save string, _ []storage.Info) bool { return live(save) })
		err := m.look(ctx, f)
		errs = append(errs, err)
		return err != nil
	})
	for _, f := range all {
		if f.plain != nil || f.sharded != nil {
			of := savedStep{step: f.step}
			if f.sharded != nil {
				of.value, of.known = numbersOf(f.sharded.Metrics)[keep.Metric]
			}
			saved = append(saved, of)
		}
	}
	drop := keep.drop(saved)
	for _, f := range all {
		err := m.clear(ctx, f, late)
		if err == nil && slices.Contains(drop, f.step) {
			err = m.remove(ctx, f)
		}
		if link := (*PathError)(nil); errors.As(err, &link) { // nothing beyond it is this store's
			m.leave(f, "", &CorruptError{File: link.Path, Reason: "it cannot be removed", Err: err})
			err = nil
		}
		errs = append(errs, err)
	}
	if sweeper, ok := m.store.(storage.Sweeper); ok {
		errs = append(errs, sweeper.Sweep(ctx, stepPrefix, func(name string) bool {
			elements := strings.Split(name, "/")
			return len(elements) > 2 && live(elements[1]) || foreignFolder(name)
		}))
	}
	return errors.Join(errs...)
}

// foreignFolder reports whether a name of a [storage.Sweeper] is a folder's and not that of a step or a save.
func foreignFolder(name string) bool {
	first, _, _ := strings.Cut(name, "/")
	_, ok := parseStep(first)
	return strings.HasSuffix(name, "/") && (!ok || strings.Count(name, "/") > 2)
}

// removeEmptyFolders removes folders of steps that have no files, as an interrupted save leaves. Folders
// that cannot be removed stay.
func (m *Manager) removeEmptyFolders(ctx context.Context) error {
	sweeper, ok := m.store.(storage.Sweeper)
	if !ok {
		return nil
	}
	err := sweeper.Sweep(ctx, stepPrefix, func(name string) bool { return !strings.HasSuffix(name, "/") || foreignFolder(name) })
	if err != nil {
		return doing("remove empty folders", "", err)
	}
	return nil
}

// look reads what says which objects of a step may go. It asks for the manifest by its name, as a
// listing may lag behind, and after the statements that disown saves, which are removed once the
// manifest is there.
func (m *Manager) look(ctx context.Context, f *stepFolder) error {
	for save, objects := range f.saves {
		if !slices.ContainsFunc(objects, func(o storage.Info) bool { return o.Name == voidName(f.step, save) }) {
			continue
		}
		data, err := readSmall(ctx, m.store, voidName(f.step, save))
		if err != nil && !errors.Is(err, storage.ErrNotExist) && !errors.Is(err, ErrCorrupt) {
			return err
		}
		var v voidManifest
		f.void[save] = err == nil && unseal(data, voidFormat, &v) == nil && v.Step == f.step && v.Save == save
	}
	var err error
	f.plain, f.sharded, err = manifestIn(ctx, m.store, f.step)
	switch {
	case err == nil || errors.Is(err, storage.ErrNotExist):
	case errors.Is(err, ErrCorrupt), errors.Is(err, ErrVersion):
		f.wrong = err
	default:
		return err
	}
	return nil
}

// clear removes what is of a step and not of its checkpoint.
func (m *Manager) clear(ctx context.Context, f *stepFolder, late string) error {
	if f.wrong != nil {
		m.leave(f, "", f.wrong)
		return nil
	}
	for _, save := range slices.Sorted(maps.Keys(f.saves)) {
		switch {
		case f.sharded != nil && f.sharded.Save == save:
			if f.void[save] { // the save ended before it could remove it
				if err := m.store.Remove(ctx, voidName(f.step, save)); err != nil {
					return err
				}
			}
			continue
		case !f.void[save] && !m.whole(ctx, f):
			m.leave(f, save, nil)
			continue
		}
		if err := m.discard(ctx, f.step, save, f.saves[save], save == late); err != nil {
			return err
		}
		delete(f.saves, save)
	}
	return nil
}

// whole reports whether the save that a step's manifest names is there, as long as it was written.
func (m *Manager) whole(ctx context.Context, f *stepFolder) bool {
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
		if !slices.ContainsFunc(f.saves[f.sharded.Save], func(i storage.Info) bool { return i.Name == name && i.Size == o.size }) {
			return false
		}
	}
	return true
}

// leave tells, once, what stays because nothing verified disowns it.
func (m *Manager) leave(f *stepFolder, save string, wrong error) {
	what, reason := fmt.Sprintf("checkpoint: %s/%s", m.store, stepName(f.step)), "it stays, as its manifest cannot be verified"
	if save != "" {
		what += "/" + save
	}
	if wrong == nil {
		reason = "it stays, as no manifest tells whether it was a checkpoint"
	}
	err := &errkind.Fault{Op: what, Reason: reason, Err: wrong, Hint: "restore the manifest from a copy, or remove it",
		Class: errkind.Or(wrong, errkind.DataLossError)}
	if text := err.Error(); !m.said[text] {
		m.said[text] = true
		m.opts.Logger.Warn("checkpoint: something stays that could not be verified", "error", err)
	}
}

// void says that a save is no checkpoint.
func (m *Manager) void(ctx context.Context, step int64, save string) error {
	data, err := seal(voidManifest{Format: voidFormat, Version: formatVersion, Step: step, Save: save})
	if err != nil {
		return err
	}
	return storage.PutBytes(ctx, m.store, voidName(step, save), data, storage.PutOptions{})
}

// drop takes a step away that the run goes back behind: its checkpoint, or the manifest that cannot
// be verified, which is kept under another name.
func (m *Manager) drop(ctx context.Context, f *stepFolder) error {
	if err := m.look(ctx, f); err != nil {
		return err
	}
	if f.wrong == nil {
		if err := m.clear(ctx, f, ""); err != nil {
			return err
		}
		return m.remove(ctx, f)
	}
	m.leave(f, "", f.wrong)
	data, err := readSmall(ctx, m.store, manifestName(f.step))
	if err != nil {
		return err
	}
	aside := fmt.Sprintf("%s.unverified-%s", manifestName(f.step), checksum(0).plus(data))
	if err := storage.PutBytes(ctx, m.store, aside, data, storage.PutOptions{}); err != nil {
		return err
	}
	return m.store.Remove(ctx, manifestName(f.step))
}

// remove takes a checkpoint away whose manifest is verified. The manifest goes first, so that the
// checkpoint is never there in part, and what is left if this is interrupted is disowned before.
func (m *Manager) remove(ctx context.Context, f *stepFolder) error {
	if f.sharded != nil {
		if err := m.void(ctx, f.step, f.sharded.Save); err != nil {
			return err
		}
	}
	if err := m.store.Remove(ctx, manifestName(f.step)); err != nil {
		return err
	}
	if f.sharded == nil {
		return m.store.Remove(ctx, stepName(f.step)+"/"+variablesFile)
	}
	return m.discard(ctx, f.step, f.sharded.Save, f.saves[f.sharded.Save], false)
}

// discard removes the objects of a save that is disowned. What disowns it goes last, or stays for
// objects that are still to come.
func (m *Manager) discard(ctx context.Context, step int64, save string, objects []storage.Info, more bool) error {
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
