package checkpoint

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/storage"
)

// unverified records the warnings of a manager's logger.
type unverified struct {
	slog.Handler
	errs []string
}

func (u *unverified) Handle(_ context.Context, r slog.Record) error {
	r.Attrs(func(a slog.Attr) bool {
		if err, ok := a.Value.Any().(error); ok && strings.Contains(r.Message, "could not be verified") {
			u.errs = append(u.errs, err.Error())
		}
		return true
	})
	return nil
}

func (u *unverified) logger() *slog.Logger {
	u.Handler = slog.NewTextHandler(os.Stderr, nil)
	return slog.New(u)
}

// contents returns the objects of a store by name.
func contents(t testing.TB, s storage.Store) map[string]string {
	t.Helper()
	all, err := s.List(context.Background(), "")
	require.NoError(t, err)
	of := map[string]string{}
	for _, info := range all {
		data, err := storage.ReadAll(context.Background(), s, info.Name, 1<<20)
		require.NoError(t, err)
		of[info.Name] = string(data)
	}
	return of
}

// threeSaves saves steps 1 to 3 in a folder.
func threeSaves(t testing.TB) (storage.Store, string) {
	t.Helper()
	dir := t.TempDir()
	s, err := storage.Directory(dir)
	require.NoError(t, err)
	m := managerOf(t, s, ManagerOptions{})
	for step := int64(1); step <= 3; step++ {
		require.NoError(t, m.Save(context.Background(), step, numbers(float32(step)),
			SaveOptions{Metrics: map[string]float64{"loss": float64(step)}}))
	}
	require.NoError(t, m.Close())
	return s, dir
}

// The test damages the manifests and continues saving. All objects remain, and after the damage is
// repaired all checkpoints verify.
func TestNothingIsRemovedThatNoVerifiedManifestDisowns(t *testing.T) {
	ctx := context.Background()
	other, _ := threeSaves(t) // of another run
	for name, c := range map[string]struct {
		harm func(t *testing.T, dir string)
		step int64 // step in the warning
		save bool  // the warning is about a save of the step
	}{
		"a bit of the name of the save": {func(t *testing.T, dir string) {
			path := filepath.Join(dir, manifestName(1))
			data, err := os.ReadFile(path)
			require.NoError(t, err)
			at := bytes.Index(data, []byte(`"save":"`)) + len(`"save":"`)
			data[at] ^= 1
			require.NoError(t, os.WriteFile(path, data, 0o644))
		}, 1, false},
		"two manifests exchanged": {func(t *testing.T, dir string) {
			one, two, spare := filepath.Join(dir, manifestName(1)), filepath.Join(dir, manifestName(2)),
				filepath.Join(dir, "spare")
			require.NoError(t, os.Rename(one, spare))
			require.NoError(t, os.Rename(two, one))
			require.NoError(t, os.Rename(spare, two))
		}, 1, false},
		"a manifest of the same step of another run": {func(t *testing.T, dir string) {
			data, err := os.ReadFile(filepath.Join(other.String(), manifestName(1)))
			require.NoError(t, err)
			require.NoError(t, os.WriteFile(filepath.Join(dir, manifestName(1)), data, 0o644))
		}, 1, true},
		"a manifest gone": {func(t *testing.T, dir string) {
			require.NoError(t, os.Remove(filepath.Join(dir, manifestName(1))))
		}, 1, true},
		"a manifest of a later version": {func(t *testing.T, dir string) {
			path := filepath.Join(dir, manifestName(1))
			data, err := os.ReadFile(path)
			require.NoError(t, err)
			var s envelope
			require.NoError(t, decodeStrict(data, &s))
			body := bytes.Replace(s.Manifest, []byte(`"version":1`), []byte(`"version":2`), 1)
			body = regexp.MustCompile(`"save":"."`).ReplaceAll(body, []byte(`"save":"x"`))
			require.NoError(t, os.WriteFile(path, sealed(body), 0o644))
		}, 1, false},
		"a manifest that is a link": {func(t *testing.T, dir string) {
			one := filepath.Join(dir, manifestName(1))
			require.NoError(t, os.Remove(one))
			require.NoError(t, os.Symlink(filepath.Join(dir, manifestName(2)), one))
		}, 1, false},
	} {
		t.Run(name, func(t *testing.T) {
			s, dir := threeSaves(t)
			whole := contents(t, s)
			c.harm(t, dir)
			harmed := contents(t, s)
			told := &unverified{}
			m := managerOf(t, s, ManagerOptions{Logger: told.logger()})
			for step := int64(4); step <= 5; step++ {
				require.NoError(t, m.Save(ctx, step, numbers(float32(step)), SaveOptions{}))
				require.NoError(t, m.Wait(ctx))
			}
			now := contents(t, s)
			for name, data := range harmed {
				if name != ownerObject {
					assert.Equal(t, data, now[name], "%s was changed or removed", name)
				}
			}
			if assert.NotEmpty(t, told.errs) {
				what, _, _ := strings.Cut(told.errs[0], ": it is kept")
				assert.Contains(t, what, "/"+stepName(c.step))
				assert.Equal(t, c.save, !strings.HasSuffix(what, "/"+stepName(c.step)), what)
			}
			for name, data := range whole {
				require.NoError(t, os.RemoveAll(filepath.Join(dir, name)))
				require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(data), 0o644))
			}
			for step := int64(1); step <= 3; step++ {
				requireStep(t, m, step, float32(step))
			}
		})
	}
}

// sealed returns a manifest of the given text with a valid checksum.
func sealed(body []byte) []byte {
	return []byte(`{"crc32c":"` + checksum(0).update(body).String() + `","checkpoint":` + string(body) + `}`)
}

// A retention keeps the configured number of intact checkpoints. Swapped metrics do not select a
// checkpoint.
func TestARetentionCountsAndDropsWhatIsVerified(t *testing.T) {
	ctx := context.Background()
	s, dir := threeSaves(t)
	path := filepath.Join(dir, manifestName(3))
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(path, data[:len(data)-1], 0o644))
	m := managerOf(t, s, ManagerOptions{Retention: Retention{Last: 2, Best: 1, Metric: "loss"}})
	require.NoError(t, m.Save(ctx, 4, numbers(4), SaveOptions{Metrics: map[string]float64{"loss": 9}}))
	require.NoError(t, m.Wait(ctx))
	steps, err := m.Steps(ctx)
	require.NoError(t, err)
	require.Equal(t, []int64{1, 2, 3, 4}, steps, "the best, two intact ones, and what is damaged")
	require.NoError(t, m.Save(ctx, 5, numbers(5), SaveOptions{}))
	require.NoError(t, m.Wait(ctx))
	steps, err = m.Steps(ctx)
	require.NoError(t, err)
	require.Equal(t, []int64{1, 3, 4, 5}, steps)
	require.NoError(t, os.WriteFile(path, data, 0o644))
	requireStep(t, m, 3, 3)
	// RemoveAfter keeps objects that no verified manifest allows to remove, so that they can be
	// repaired.
	require.NoError(t, os.WriteFile(path, data[:9], 0o644))
	before := contents(t, s)
	require.NoError(t, m.RemoveAfter(ctx, 1))
	var aside string
	for name, was := range before {
		now, there := contents(t, s)[name]
		if kept := name == ownerObject || strings.HasPrefix(name, stepName(1)) || strings.HasPrefix(name, stepName(3)) &&
			name != manifestName(3); kept {
			require.Equal(t, was, now, name)
		} else {
			require.False(t, there, name)
		}
	}
	for name := range contents(t, s) {
		if strings.HasPrefix(name, manifestName(3)+".unverified-") {
			aside = name
		}
	}
	require.Equal(t, before[manifestName(3)], contents(t, s)[aside])
	steps, err = m.Steps(ctx)
	require.NoError(t, err)
	require.Equal(t, []int64{1}, steps)
	require.NoError(t, os.WriteFile(path, data, 0o644))
	requireStep(t, m, 3, 3)
	require.NoError(t, m.RemoveAfter(ctx, 2))
	require.NoError(t, m.Save(ctx, 3, numbers(33), SaveOptions{}))
	require.NoError(t, m.Wait(ctx))
	requireStep(t, m, 3, 33)
}

// The removal of a checkpoint is interrupted after each of its calls.
func TestAnInterruptedRemovalGoesOn(t *testing.T) {
	ctx := context.Background()
	for at := 1; ; at++ {
		s, _ := threeSaves(t)
		f := &faultyStore{Store: s, what: func(context.Context, string,
			func(io.Writer) error) error {
			return syscall.ENOSPC
		}}
		m := managerOf(t, f, ManagerOptions{})
		f.calls, f.at = 0, at
		err := m.RemoveAfter(ctx, 2)
		f.at = 0
		if err == nil {
			break
		}
		next := managerOf(t, s, ManagerOptions{})
		require.NoError(t, next.Save(ctx, 7, numbers(7), SaveOptions{}))
		require.NoError(t, next.Close())
		requireWhole(t, s, 4)
		require.Less(t, at, 20)
	}
}

func TestALinkedFolderIsNotFollowed(t *testing.T) {
	ctx := context.Background()
	s, dir := threeSaves(t)
	outside := filepath.Join(t.TempDir(), "elsewhere")
	for _, folder := range []string{stepName(2), stepName(9)} {
		linked := filepath.Join(dir, folder)
		if folder == stepName(2) {
			require.NoError(t, os.Rename(linked, outside))
		}
		require.NoError(t, os.Symlink(outside, linked))
	}
	elsewhere, err := storage.Directory(outside)
	require.NoError(t, err)
	before := contents(t, elsewhere)
	m := managerOf(t, s, ManagerOptions{Retention: Retention{Last: 1}})
	for _, step := range []int64{2, 9} {
		_, err := m.Open(ctx, step)
		require.ErrorIs(t, err, ErrCorrupt)
		var link *PathError
		require.ErrorAs(t, err, &link)
	}
	require.NoError(t, m.Save(ctx, 4, numbers(4), SaveOptions{}))
	require.NoError(t, m.Wait(ctx))
	require.NoError(t, m.Save(ctx, 9, numbers(9), SaveOptions{}))
	require.Error(t, m.Wait(ctx), "its folder is a link")
	require.NoError(t, m.RemoveAfter(ctx, 1))
	require.Equal(t, before, contents(t, elsewhere))
}
