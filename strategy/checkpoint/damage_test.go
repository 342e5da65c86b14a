package checkpoint

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/storage"
)

// objects is an object store in memory.
type objects struct {
	mu  sync.Mutex
	all map[string]string
}

func (o *objects) Put(_ context.Context, name string, opts storage.PutOptions, write func(io.Writer) error) error {
	var data bytes.Buffer
	if err := write(&data); err != nil {
		return err
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if _, there := o.all[name]; there && opts.IfAbsent {
		return storage.WrapError("put", name, o, storage.ErrExists)
	}
	o.all[name] = data.String()
	return nil
}

func (o *objects) Open(_ context.Context, name string) (storage.Object, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	data, ok := o.all[name]
	if !ok {
		return nil, storage.WrapError("open", name, o, storage.ErrNotExist)
	}
	return inMemory(data), nil
}

func (o *objects) List(_ context.Context, prefix string) (all []storage.Info, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(o.all)) {
		if strings.HasPrefix(name, prefix) {
			all = append(all, storage.Info{Name: name, Size: int64(len(o.all[name])), Modified: time.Now()})
		}
	}
	return all, nil
}

func (o *objects) Remove(_ context.Context, name string) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.all, name)
	return nil
}

func (o *objects) String() string { return "memory" }
func (o *objects) Close() error   { return nil }

type inMemory string

func (m inMemory) Size() int64  { return int64(len(m)) }
func (m inMemory) Close() error { return nil }
func (m inMemory) ReadAt(_ context.Context, p []byte, at int64) error {
	if at+int64(len(p)) > int64(len(m)) {
		return io.ErrUnexpectedEOF
	}
	copy(p, m[at:])
	return nil
}

// leftStep is the step of an interrupted save.
const leftStep = 6

// fiveSaves returns the objects of five checkpoints and of an interrupted save.
func fiveSaves(t testing.TB) map[string]string {
	ctx := context.Background()
	s := &objects{all: map[string]string{}}
	m := managerOf(t, s, ManagerOptions{})
	for step := int64(1); step <= leftStep; step++ {
		require.NoError(t, m.Save(ctx, step, numbers(float32(step)),
			SaveOptions{Metrics: map[string]float64{"loss": float64(step * 7 % 5)}}))
	}
	require.NoError(t, m.Close())
	require.NoError(t, m.markVoid(ctx, leftStep, fmt.Sprintf("%s-%d", m.runName, leftStep)))
	require.NoError(t, s.Remove(ctx, manifestName(leftStep)))
	return s.all
}

// folder writes objects to a folder of the file system.
func folder(t testing.TB, dir string, all map[string]string) storage.Store {
	for name, data := range all {
		path := filepath.Join(dir, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, []byte(data), 0o644))
	}
	s, err := storage.Directory(dir)
	require.NoError(t, err)
	return s
}

// harm damages objects in one random way and describes the damage. dir is empty for an object
// store.
func harm(rng *rand.Rand, s storage.Store, dir string) (what string, err error) {
	ctx := context.Background()
	listed, err := s.List(ctx, "")
	if err != nil {
		return "", err
	}
	pick := func() string { return listed[rng.IntN(len(listed))].Name }
	if rng.IntN(2) == 0 { // damage manifests more often than tensors
		listed = slices.DeleteFunc(listed, func(i storage.Info) bool {
			return strings.HasPrefix(filepath.Base(i.Name),
				"host-")
		})
	}
	name, other := pick(), pick()
	read := func(name string) []byte {
		data, failed := storage.ReadAll(ctx, s, name, 1<<20)
		err = failed
		return data
	}
	write := func(name string, data []byte) {
		if err == nil {
			err = storage.PutBytes(ctx, s, name, data, storage.PutOptions{})
		}
	}
	kinds := 6
	if dir != "" {
		kinds = 8
	}
	switch rng.IntN(kinds) {
	case 0, 1:
		data := read(name)
		for range 1 + rng.IntN(3) {
			if len(data) > 0 {
				data[rng.IntN(len(data))] ^= 1 << rng.IntN(8)
			}
		}
		write(name, data)
		return "bits of " + name, err
	case 2:
		one, two := read(name), read(other)
		write(name, two)
		write(other, one)
		return "exchange of " + name + " and " + other, err
	case 3:
		data := read(name)
		write(name, data[:rng.IntN(len(data)+1)])
		return "cut of " + name, err
	case 4:
		return "removal of " + name, s.Remove(ctx, name)
	case 5:
		// Copy to a name that may not exist yet.
		other = stepName(int64(1+rng.IntN(8))) + "/" + filepath.Base(other)
		write(other, read(name))
		return "copy of " + name + " to " + other, err
	case 6:
		if name == ownerObject { // a save returns an error for it
			name = manifestName(1)
		}
		if err := os.RemoveAll(filepath.Join(dir, name)); err != nil {
			return "", err
		}
		return "link at " + name + " to " + other, os.Symlink(filepath.Join(dir, other), filepath.Join(dir, name))
	default:
		one, two := filepath.Join(dir, stepName(int64(1+rng.IntN(5)))), stepName(int64(1+rng.IntN(5)))
		if err := os.Rename(one, filepath.Join(dir, "moved"+strconv.Itoa(rng.Int()))); err != nil && !os.IsNotExist(err) {
			return "", err
		}
		if _, err := os.Lstat(one); err == nil {
			return "nothing", nil
		}
		return "link at " + one + " to " + two, os.Symlink(two, one)
	}
}

// intact returns the steps that verify.
func intact(t testing.TB, m *Manager) map[int64]bool {
	ctx := context.Background()
	all := map[int64]bool{}
	steps, err := m.Steps(ctx)
	require.NoError(t, err)
	for _, step := range steps {
		if c, err := m.Open(ctx, step); err == nil {
			all[step] = c.Verify(ctx) == nil
			require.NoError(t, c.Close())
		}
	}
	return all
}

// The test damages a folder or an object store of five checkpoints at random and continues saving.
// Checkpoints that verified before still verify, unless the retention dropped them. All other
// objects are unchanged, except for an interrupted save with a valid void.json. After the damage is
// repaired, every checkpoint that the retention keeps is complete again. TPUSTRATEGY_DAMAGES is the
// number of repetitions.
func TestWhatVerifiedGoesOnVerifying(t *testing.T) {
	times := 40
	if text := os.Getenv("TPUSTRATEGY_DAMAGES"); text != "" {
		var err error
		times, err = strconv.Atoi(text)
		require.NoError(t, err)
	}
	ctx := context.Background()
	original := fiveSaves(t)
	harmed, dropped, left := 0, 0, 0
	for i := range times {
		rng := rand.New(rand.NewPCG(23, uint64(i)))
		keep := []Retention{{}, {Last: 2}, {Last: 3, Every: 2}, {Last: 1, Best: 2, Metric: "loss"}}[rng.IntN(4)]
		var s storage.Store = &objects{all: maps.Clone(original)}
		dir := ""
		if i%2 == 0 {
			dir = t.TempDir()
			s = folder(t, dir, original)
		}
		var what []string
		for range 1 + rng.IntN(3) {
			text, err := harm(rng, s, dir)
			if !errors.As(err, new(*PathError)) { // the path is behind an existing link
				require.NoError(t, err)
			}
			what = append(what, text)
		}
		said := fmt.Sprintf("damage %d (%s), %+v", i, strings.Join(what, "; "), keep)
		before := contents(t, s)
		told := &unverified{}
		m := managerOf(t, s, ManagerOptions{Retention: keep, TakeOver: true, Logger: told.logger()})
		whole := intact(t, m)
		// The retention only considers steps whose manifests are unchanged or equivalent (JSON
		// names are read case-insensitively).
		var saved []savedStep
		for step := int64(1); step < leftStep; step++ {
			if of := before[manifestName(step)]; of == original[manifestName(step)] || whole[step] {
				saved = append(saved, savedStep{step, float64(step * 7 % 5), true})
			}
		}
		outdated := map[int64]bool{}
		for step := int64(11); step < 14; step++ {
			require.NoError(t, m.Save(ctx, step, numbers(float32(step)), SaveOptions{}), said)
			require.NoError(t, m.Wait(ctx), said)
			saved = append(saved, savedStep{step: step})
			for _, step := range keep.stepsToRemove(saved) {
				outdated[step] = true
				saved = slices.DeleteFunc(saved, func(s savedStep) bool { return s.step == step })
			}
		}
		after := contents(t, s)
		now := intact(t, m)
		for step := int64(1); step < leftStep; step++ {
			require.True(t, !whole[step] || now[step] || outdated[step], "%s: step %d verified before", said, step)
			if !whole[step] {
				harmed++
			}
		}
		for name, data := range before {
			folder, rest, _ := strings.Cut(name, "/")
			step, ok := parseStep(folder)
			void := filepath.Dir(name) + "/" + voidFile
			disowned := strings.Count(rest, "/") == 1 && step == leftStep && decodeManifest([]byte(before[void]), voidFormat,
				&voidManifest{}) == nil
			if ok && !outdated[step] && !disowned {
				require.Equal(t, data, after[name], "%s: %s", said, name)
			}
		}
		dropped, left = dropped+len(outdated), left+len(told.errs)
		for step := int64(1); step < leftStep; step++ {
			if outdated[step] {
				continue
			}
			if dir != "" {
				require.NoError(t, os.RemoveAll(filepath.Join(dir, stepName(step))))
			}
			for name, data := range original {
				if strings.HasPrefix(name, stepName(step)+"/") {
					require.NoError(t, storage.PutBytes(ctx, s, name, []byte(data), storage.PutOptions{}))
				}
			}
			requireStep(t, m, step, float32(step))
		}
		require.NoError(t, m.Close())
	}
	t.Logf("%d damages: %d checkpoints no longer verified, %d were outdated by the rule, %d warnings of what stays", times,
		harmed, dropped, left)
	require.Greater(t, min(harmed, dropped, left), times/4)
}
