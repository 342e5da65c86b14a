package fit_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/gomlx/gomlx/ml/train/optimizer"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/fit"
	"github.com/tpustrategy/tpustrategy/internal/test/plugintest"
	"github.com/tpustrategy/tpustrategy/internal/test/strategytest"
	"github.com/tpustrategy/tpustrategy/storage"
	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/strategy/train"
	"github.com/tpustrategy/tpustrategy/tpu/simhost"
)

// watchedReads calls a function at chosen moments of a reader: after a listing, and after an object
// was opened. Another run saves and removes checkpoints at these moments.
var watchedReads = struct {
	sync.Once
	sync.Mutex
	call func(moment string)
}{}

type watchedStore struct{ storage.Store }

func (w watchedStore) List(ctx context.Context, prefix string) ([]storage.Info, error) {
	all, err := w.Store.List(ctx, prefix)
	w.read("list")
	return all, err
}

func (w watchedStore) Open(ctx context.Context, name string) (storage.Object, error) {
	o, err := w.Store.Open(ctx, name)
	switch {
	case strings.Count(name, "/") == 1:
		w.read("manifest")
	case strings.HasSuffix(name, ".json"):
		w.read("part")
	}
	return o, err
}

func (watchedStore) read(moment string) {
	watchedReads.Lock()
	defer watchedReads.Unlock()
	if watchedReads.call != nil {
		watchedReads.call(moment)
	}
}

// A run that resumes while the previous run still saves and removes checkpoints resumes from the
// last checkpoint, whatever happens between its reads. No checkpoint counts as damaged.
func TestAResumeBesideARunThatSavesFindsACheckpoint(t *testing.T) {
	watchedReads.Do(func() {
		storage.Register("watched", func(_ context.Context, place string) (storage.Store, error) {
			u, err := url.Parse(place)
			if err != nil {
				return nil, err
			}
			s, err := storage.Directory(u.Path)
			return watchedStore{s}, err
		})
	})
	sys := plugintest.System(t, 4)
	const last = 9 // number of saved steps
	source := filepath.Join(t.TempDir(), "source")
	var said bytes.Buffer
	log := slog.New(slog.NewTextHandler(&said, nil))
	// run returns the steps from which the processes resumed.
	run := func(processes int, steps int64, place string, opts fit.CheckpointOptions) []int64 {
		resumed := make([]int64, processes)
		strategytest.NoErrors(t, strategytest.OnProcesses(t, sys, simhost.Options{Processes: processes},
			strategy.Options{Replicas: 2, LogicalDevices: 2}, func(ctx context.Context, s *strategy.TPUStrategy) error {
				step := strategytest.OK(train.New(s, strategytest.SeededStore(), optimizer.Adam().LearningRate(0.01).Done(),
					denseLoss(2), train.Options{}))
				result, err := fit.Run(ctx, step, fit.Dataset(dataset(t, 8).Repeat(-1)), fit.Options{Steps: steps, Resume: true,
					Logger: log}, fit.Checkpoint(place, 1, opts))
				resumed[s.Process()] = result.ResumedFrom
				return err
			}))
		return resumed
	}
	for _, processes := range []int{1, 2} {
		from := fmt.Sprint(source, processes)
		run(processes, last, from, fit.CheckpointOptions{Keep: -1})
		for _, moment := range []string{"list", "manifest", "part"} {
			for _, times := range []int64{1, 4} {
				t.Run(fmt.Sprint(processes, " processes ", moment, " ", times), func(t *testing.T) {
					dir := t.TempDir()
					folder := func(step int64) string { return fmt.Sprintf("step-%010d", step) }
					add := func(step int64) {
						require.NoError(t, os.CopyFS(filepath.Join(dir, folder(step)), os.DirFS(filepath.Join(from, folder(step)))))
					}
					now := int64(1)
					add(now)
					watchedReads.Lock()
					watchedReads.call = func(at string) {
						if at == moment && now <= times {
							add(now + 1)
							require.NoError(t, os.RemoveAll(filepath.Join(dir, folder(now))))
							now++
						}
					}
					watchedReads.Unlock()
					said.Reset()
					resumed := run(processes, last, "watched://"+dir, fit.CheckpointOptions{})
					watchedReads.Lock()
					watchedReads.call = nil
					watchedReads.Unlock()
					assert.Equal(t, times+1, now)
					for _, step := range resumed {
						assert.Equal(t, now, step)
					}
					assert.NotContains(t, said.String(), "damaged")
				})
			}
		}
	}
}
