package checkpoint

import (
	"context"
	"encoding/json"
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/tpustrategy/tpustrategy/storage"
)

// ownerObject holds what is known of the run that saves to a store: two do not mix.
const ownerObject = "owner.json"

// own returns an error if another run saves to the store. The first call makes the store this
// run's, unless that run's process still runs on this machine.
func (m *Manager) own(ctx context.Context) error {
	data, err := readSmall(ctx, m.store, ownerObject)
	if err != nil && !errors.Is(err, storage.ErrNotExist) {
		return err
	}
	var r ownerRecord
	known := err == nil && len(data) <= maxRecord && json.Unmarshal(data, &r) == nil && r.ID != ""
	conflict := func(running bool) error {
		return &OwnerError{Directory: m.store.String(), Host: r.Host, PID: r.PID, Since: r.Time, Step: r.Step, Running: running}
	}
	switch {
	case known && r.ID == m.self.ID:
		return nil
	case m.owned && !m.opts.TakeOver:
		return conflict(known && r.runs(m.self))
	case known && !m.opts.TakeOver && r.runs(m.self):
		return conflict(true)
	}
	m.self.Time, m.self.Step = time.Now().UTC().Truncate(time.Second), m.known()
	if data, err = json.Marshal(m.self); err != nil {
		return err
	}
	if err := storage.PutBytes(ctx, m.store, ownerObject, data, storage.PutOptions{}); err != nil {
		return err
	}
	m.owned = true
	if sweeper, ok := m.store.(storage.Sweeper); ok {
		// What is left of another run's record, which ended in the middle of it; it stands in no folder.
		err = sweeper.Sweep(ctx, "", func(name string) bool { return strings.Contains(name, "/") })
	}
	return err
}

// tidy removes the checkpoints that are not kept, and what interrupted saves left.
func (m *Manager) tidy(ctx context.Context, number int) error {
	steps, err := m.Steps(ctx)
	if err != nil {
		return err
	}
	var saved []savedStep
	for _, step := range steps {
		of := savedStep{step: step}
		if m.opts.Retention.Best > 0 {
			if of.value, of.known, err = m.metricOf(ctx, step); err != nil {
				return err
			}
		}
		saved = append(saved, of)
	}
	for _, step := range m.opts.Retention.drop(saved) {
		if err := m.remove(ctx, step); err != nil {
			return err
		}
	}
	return m.clear(ctx, number)
}

// remove takes a checkpoint away. Its manifest goes first, so that it is never there in part.
func (m *Manager) remove(ctx context.Context, step int64) error {
	if err := m.store.Remove(ctx, manifestName(step)); err != nil {
		return err
	}
	all, err := m.store.List(ctx, stepName(step)+"/")
	if err != nil {
		return err
	}
	for _, info := range all {
		if err := m.store.Remove(ctx, info.Name); err != nil {
			return err
		}
	}
	return nil
}

// clear removes what saves left that have no manifest, of this run those up to a number. Whether
// there is a manifest is asked by its name, as a listing may lag behind. What another process of a
// failed save still puts is found by a later save.
func (m *Manager) clear(ctx context.Context, number int) error {
	all, err := m.store.List(ctx, stepPrefix)
	if err != nil {
		return err
	}
	live := func(name string) bool {
		elements := strings.Split(name, "/")
		if len(elements) < 3 {
			return false
		}
		mine, ok := strings.CutPrefix(elements[1], m.run+"-")
		n, err := strconv.Atoi(mine)
		return ok && (err != nil || n > number)
	}
	named := map[int64]string{} // the save that a step's manifest names, "" without one
	for _, info := range all {
		elements := strings.Split(info.Name, "/")
		step, ok := parseStep(elements[0])
		if !ok || len(elements) != 3 || !strings.HasPrefix(elements[2], "host-") || live(info.Name) {
			continue // nothing that a save in shards left
		}
		if _, asked := named[step]; !asked {
			if named[step], err = m.saveOf(ctx, step); err != nil {
				return err
			}
		}
		if save := named[step]; save != foreign && save != elements[1] {
			if err := m.store.Remove(ctx, info.Name); err != nil {
				return err
			}
		}
	}
	if sweeper, ok := m.store.(storage.Sweeper); ok {
		return sweeper.Sweep(ctx, stepPrefix, live)
	}
	return nil
}

// foreign stands for the save of a manifest that is damaged or of another form: all of its step is
// left as it is.
const foreign = "?"

// saveOf returns the save that a step's manifest names, and "" if there is no manifest.
func (m *Manager) saveOf(ctx context.Context, step int64) (string, error) {
	data, err := readSmall(ctx, m.store, manifestName(step))
	if errors.Is(err, storage.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	if h := headOf(data); h.Format == shardedFormat && h.Save != "" {
		return h.Save, nil
	}
	return foreign, nil
}
