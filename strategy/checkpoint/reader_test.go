package checkpoint

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/storage"
)

// hookedStore calls a function at chosen moments of a reader: after a listing, after the manifest of a
// step was opened, and after the manifest of a part was opened. A writer saves and removes meanwhile.
type hookedStore struct {
	storage.Store
	hook func(moment string)
}

func (h *hookedStore) List(ctx context.Context, prefix string) ([]storage.Info, error) {
	infos, err := h.Store.List(ctx, prefix)
	h.hook("list")
	return infos, err
}

func (h *hookedStore) Open(ctx context.Context, name string) (storage.Object, error) {
	o, err := h.Store.Open(ctx, name)
	switch {
	case strings.Count(name, "/") == 1:
		h.hook("manifest")
	case strings.HasSuffix(name, ".json"):
		h.hook("part")
	}
	return o, err
}

// A reader always finds a checkpoint while a run saves and removes checkpoints at any point of the
// reader's progress.
func TestAReaderBesideARunFindsACheckpoint(t *testing.T) {
	ctx := context.Background()
	for _, keep := range []int{1, 3} {
		for _, moment := range []string{"list", "manifest", "part"} {
			for _, times := range []int{1, 5} {
				for name, read := range map[string]func(m *Manager) (*Checkpoint, error){
					"Latest": func(m *Manager) (*Checkpoint, error) { return m.Latest(ctx) },
					"LatestIntact": func(m *Manager) (*Checkpoint, error) {
						c, passed, err := m.LatestIntact(ctx)
						require.Empty(t, passed)
						return c, err
					},
				} {
					t.Run(fmt.Sprint(name, " keep ", keep, " ", moment, " ", times), func(t *testing.T) {
						w := newRun(t, ManagerOptions{Retention: Retention{Last: keep}})
						step := int64(0)
						save := func() {
							step++
							require.NoError(t, w.Save(ctx, step, numbers(float32(step)), SaveOptions{}))
						}
						for range keep {
							save()
						}
						place, err := storage.Open(ctx, w.Dir())
						require.NoError(t, err)
						defer place.Close()
						left := 0
						hooked := &hookedStore{Store: place, hook: func(at string) {
							if at == moment && left > 0 {
								left--
								for range keep {
									save()
								}
							}
						}}
						m, err := NewManager(ctx, hooked, ManagerOptions{})
						require.NoError(t, err)
						defer m.Close()
						left = times
						c, err := read(m)
						require.NoError(t, err)
						defer c.Close()
						// Latest reads one manifest of a part, and no tensors.
						if moment != "part" || name == "LatestIntact" {
							require.Zero(t, left)
							requireNumbers(t, c, float32(c.Step()))
						}
						steps, err := m.Steps(ctx)
						require.NoError(t, err)
						require.True(t, slices.Contains(steps, c.Step()) || name == "Latest")
					})
				}
			}
		}
	}
}

// Open of a step that is removed while it is opened reports that there is no such step, not damage.
func TestOpenOfARemovedStepIsNotDamage(t *testing.T) {
	ctx := context.Background()
	w := newRun(t, ManagerOptions{Retention: Retention{Last: 1}})
	require.NoError(t, w.Save(ctx, 1, numbers(1), SaveOptions{}))
	place, err := storage.Open(ctx, w.Dir())
	require.NoError(t, err)
	defer place.Close()
	hook := func(string) {}
	m, err := NewManager(ctx, &hookedStore{Store: place, hook: func(at string) { hook(at) }}, ManagerOptions{})
	require.NoError(t, err)
	defer m.Close()
	hook = func(at string) {
		hook = func(string) {}
		require.NoError(t, w.Save(ctx, 2, numbers(2), SaveOptions{}))
	}
	_, err = m.Open(ctx, 1)
	require.ErrorIs(t, err, ErrNotFound)
	require.NotErrorIs(t, err, ErrCorrupt)
}
