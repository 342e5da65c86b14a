package savetest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/internal/test/plugintest"
	"github.com/tpustrategy/tpustrategy/internal/test/strategytest"
	"github.com/tpustrategy/tpustrategy/storage"
	"github.com/tpustrategy/tpustrategy/storage/blobstore"
	"github.com/tpustrategy/tpustrategy/storage/blobstore/internal/test/fakegcs"
	"github.com/tpustrategy/tpustrategy/storage/blobstore/internal/test/faultproxy"
	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/strategy/checkpoint"
	"github.com/tpustrategy/tpustrategy/tpu/simhost"
)

// impatient are options under which an outage of two seconds is one that does not pass.
var impatient = blobstore.Options{Prefix: "run", ChunkBytes: 256 << 10, RetryTimeout: time.Second,
	StallTimeout: 250 * time.Millisecond}

const (
	kept     = 3
	faulty   = 0.12 // of all requests
	outageIn = 3    // one save of so many meets an outage
)

// weather chooses faults: a part of all requests at random, and in an outage all of them.
type weather struct {
	mu     sync.Mutex
	r      *rand.Rand
	left   int // requests until the outage; -1 is none
	faults []faultproxy.Fault
}

func (w *weather) choose(r *http.Request, _ int) faultproxy.Fault {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.left == 0 {
		return []faultproxy.Fault{faultproxy.Unavailable, faultproxy.CutRequest, faultproxy.LoseAnswer}[w.r.IntN(3)]
	}
	if w.left > 0 {
		w.left--
	}
	if w.r.Float64() >= faulty {
		return faultproxy.None
	}
	f := w.faults[w.r.IntN(len(w.faults))]
	upload := r.Method == http.MethodPost || r.Method == http.MethodPut
	content := strings.HasPrefix(r.Header.Get("Content-Type"), "multipart/") || r.Header.Get("Content-Range") != ""
	listing := r.Method == http.MethodGet && strings.HasSuffix(r.URL.Path, "/o")
	switch {
	case f == faultproxy.FlipRequest && !content, f == faultproxy.FlipAnswer && (upload || listing),
		f == faultproxy.Stale && !listing,
		f == faultproxy.ShortAnswer && upload:
		return faultproxy.Unavailable
	}
	return f
}

// outage begins one after so many requests; -1 ends it.
func (w *weather) outage(after int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.left = after
}

// TestSavesUnderFaultsLoseNothing saves again and again while a proxy does everything to the
// requests that it can: single faults, which the store gets over, and outages in which saves fail
// and runs end. TPUSTRATEGY_SAVES says how often; each life of the run has 1 to 6 saves.
//
// After each life every step that a save confirmed is there, if it is one of those that are kept;
// every step that is there holds what was saved; and in the end nothing else is in the bucket.
// Meanwhile a reader with faults of its own never reads anything but what was saved.
func TestSavesUnderFaultsLoseNothing(t *testing.T) {
	want := 8
	if n, err := strconv.Atoi(os.Getenv("TPUSTRATEGY_SAVES")); err == nil {
		want = n
	}
	sys := plugintest.System(t, 4)
	server := fakegcs.Start(t, "bucket")
	sky := &weather{r: rand.New(rand.NewPCG(uint64(want), 1)), left: -1, faults: []faultproxy.Fault{
		faultproxy.Unavailable, faultproxy.TooMany, faultproxy.CutRequest, faultproxy.LoseAnswer, faultproxy.CutAnswer,
		faultproxy.ShortAnswer,
		faultproxy.Stall, faultproxy.Slow, faultproxy.FlipRequest, faultproxy.FlipAnswer, faultproxy.Twice, faultproxy.Stale}}
	server.Proxy.Choose(sky.choose)
	_, clean := server.Second(t, "bucket", impatient)
	reader := read(t, server)

	r := rand.New(rand.NewPCG(3, uint64(want)))
	last, confirmed := int64(0), int64(0) // steps: the last that was tried, and the last that a save confirmed
	saves, failures, lives := 0, 0, 0
	for saves < want {
		lives++
		hosts := []int{4, 4, 2, 1}[r.IntN(4)]
		on := strategy.Options{Replicas: 2, LogicalDevices: 2}
		if r.IntN(2) == 0 {
			on = strategy.Options{Replicas: 4, LogicalDevices: 1}
		}
		outages := make([]int, 1+r.IntN(6)) // for each save of this life
		for i := range outages {
			outages[i] = -1
			if r.IntN(outageIn) == 0 {
				outages[i] = r.IntN(12 * hosts)
			}
		}
		first := last + 1
		var fails, done atomic.Int64
		var mine atomic.Int64
		for _, err := range strategytest.OnProcesses(t, sys, simhost.Options{Processes: hosts}, on, func(ctx context.Context,
			s *strategy.TPUStrategy) error {
			return live(ctx, s, server.Open(t, "bucket", impatient), first, outages, sky, func(step int64, err error) {
				done.Add(1)
				if err != nil {
					fails.Add(1)
				} else {
					mine.Store(step)
				}
			})
		}) {
			if err != nil {
				t.Log("life", lives, "ended with", err)
			}
		}
		sky.outage(-1)
		saves += int(done.Load())
		failures += int(fails.Load())
		confirmed = max(confirmed, mine.Load())
		last += int64(len(outages))
		holds(t, clean, confirmed)
	}
	sky.outage(-1)
	server.Proxy.Choose(nil)
	reader.stop()
	t.Logf("%d saves in %d lives, %d failed; last step %d; %d reads; faults: %v", saves, lives, failures, confirmed,
		reader.reads.Load(), server.Proxy.Done())
	require.Positive(t, reader.reads.Load())

	// One more save, without faults, clears everything away.
	last++
	strategytest.NoErrors(t, strategytest.OnProcesses(t, sys, simhost.Options{Processes: 2}, strategy.Options{Replicas: 4,
		LogicalDevices: 1}, func(ctx context.Context, s *strategy.TPUStrategy) error {
		return live(ctx, s, server.Open(t, "bucket", impatient), last, []int{-1}, sky,
			func(_ int64, err error) { assert.NoError(t, err) })
	}))
	holds(t, clean, last)
	onlyCheckpoints(t, clean)
}

// live runs saves on one host until one fails.
func live(ctx context.Context, s *strategy.TPUStrategy, store storage.Store, first int64, outages []int, sky *weather,
	result func(int64, error)) error {
	m, err := checkpoint.NewManager(ctx, store, checkpoint.ManagerOptions{Strategy: s,
		Retention: checkpoint.Retention{Last: kept}, PartTimeout: 3 * time.Second})
	if failed, e := s.AnyProcess(ctx, err != nil); failed || e != nil {
		if err == nil {
			err = m.Close()
		}
		return errors.Join(err, e)
	}
	g, err := variables(ctx, s, -1)
	if err != nil {
		return err
	}
	for i, outage := range outages {
		step := first + int64(i)
		if err := fill(ctx, g, step); err != nil {
			return err
		}
		if s.Process() == 0 {
			sky.outage(outage)
		}
		err := m.Save(ctx, step, g, checkpoint.SaveOptions{})
		if err == nil {
			err = m.Wait(ctx)
		}
		if s.Process() == 0 {
			if errors.Is(err, checkpoint.ErrNotRemoved) { // it is saved
				err = nil
			}
			result(step, err)
		}
		if failed, e := s.AnyProcess(ctx, err != nil); failed || e != nil {
			if s.Process()%2 == 0 {
				m.Abort()
			}
			return errors.Join(err, e, m.Close())
		}
	}
	return m.Close()
}

// holds looks, without faults, whether each step that is there holds what was saved, and whether a
// step that was confirmed is among them.
func holds(t *testing.T, s storage.Store, confirmed int64) {
	t.Helper()
	m, err := checkpoint.NewManager(t.Context(), s, checkpoint.ManagerOptions{})
	require.NoError(t, err)
	defer func() { require.NoError(t, m.Close()) }()
	steps, err := m.Steps(t.Context())
	require.NoError(t, err)
	if confirmed > 0 {
		require.NotEmpty(t, steps)
		require.GreaterOrEqual(t, steps[len(steps)-1], confirmed, "a confirmed step is lost")
		if steps[len(steps)-1] == confirmed {
			require.Contains(t, steps, confirmed)
		}
	}
	for _, step := range steps {
		c, err := m.Open(t.Context(), step)
		require.NoError(t, err, "step %d", step)
		require.NoError(t, c.Verify(t.Context()), "step %d", step)
		require.NoError(t, same(t.Context(), c), "step %d", step)
		require.NoError(t, c.Close())
	}
}

// same compares a checkpoint with the saved values.
func same(ctx context.Context, c *checkpoint.Checkpoint) error {
	for i, f := range forms {
		got, err := c.Tensor(ctx, f.name)
		if err != nil {
			return err
		}
		if !got.Equal(valueAt(i, c.Step())) {
			return fmt.Errorf("%w: %s of step %d", errOther, f.name, c.Step())
		}
	}
	return nil
}

var errOther = errors.New("another value than was saved")

// onlyCheckpoints looks whether the bucket holds anything but whole checkpoints.
func onlyCheckpoints(t *testing.T, s storage.Store) {
	t.Helper()
	infos, err := s.List(t.Context(), "")
	require.NoError(t, err)
	saves := map[string]bool{}
	for _, info := range infos {
		step, rest, _ := strings.Cut(info.Name, "/")
		if save, _, deep := strings.Cut(rest, "/"); deep {
			saves[step+"/"+save] = true
		}
	}
	var names []string
	for _, info := range infos {
		names = append(names, info.Name)
	}
	require.Len(t, saves, kept, "%v", names)
	manifests := slices.DeleteFunc(slices.Clone(names), func(name string) bool {
		return !strings.HasSuffix(name,
			"/checkpoint.json")
	})
	require.Len(t, manifests, kept, "%v", names)
}

// reader is one that runs while others save.
type reader struct {
	reads atomic.Int64
	stop  func()
}

func read(t *testing.T, server *fakegcs.Server) *reader {
	t.Helper()
	proxy, store := server.Second(t, "bucket", impatient)
	proxy.Choose(faultproxy.Random(5, faulty, faultproxy.Unavailable, faultproxy.CutRequest, faultproxy.LoseAnswer,
		faultproxy.CutAnswer,
		faultproxy.Slow, faultproxy.Twice))
	ctx, cancel := context.WithCancel(t.Context())
	r := &reader{}
	over := make(chan struct{})
	r.stop = func() { cancel(); <-over }
	go func() {
		defer close(over)
		for ctx.Err() == nil {
			m, err := checkpoint.NewManager(ctx, store, checkpoint.ManagerOptions{})
			if err != nil {
				continue // an outage
			}
			c, err := m.Latest(ctx)
			if err == nil {
				err = same(ctx, c)
				_ = c.Close()
			}
			switch {
			case err == nil:
				r.reads.Add(1)
			case errors.Is(err, errOther):
				assert.NoError(t, err)
			case errors.Is(err, checkpoint.ErrCorrupt):
				// The only right reason is that the step was removed meanwhile.
				assert.ErrorIs(t, err, storage.ErrNotExist)
			}
			_ = m.Close()
			select {
			case <-ctx.Done():
			case <-time.After(200 * time.Millisecond):
			}
		}
	}()
	return r
}
