package clusterresolver

import (
	"context"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func watchServer(t *testing.T, s *metadataServer) (events <-chan Event, stop func()) {
	client := NewMetadataClient(MetadataOptions{Transport: servePipe(t, s)})
	ctx, cancel := context.WithCancel(t.Context())
	events = client.Watch(ctx)
	return events, func() {
		cancel()
		for range events { // until the channel is closed
		}
	}
}

func quietFor(t *testing.T, events <-chan Event, d time.Duration) {
	t.Helper()
	select {
	case e, ok := <-events:
		t.Fatalf("unexpected event %v, open %v", e, ok)
	case <-time.After(d):
	}
}

func TestWatchSendsOnlyChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newMetadataServer(v4Values())
		events, stop := watchServer(t, s)
		quietFor(t, events, time.Hour)
		// There is one long poll per minute and key.
		assert.InDelta(t, 61, s.count(keyPreempted), 2)

		start := time.Now()
		s.set(keyMaintenance, "TERMINATE_ON_HOST_MAINTENANCE")
		e := <-events
		assert.Equal(t, Event{Kind: EventMaintenanceTerminate, Key: keyMaintenance, Value: "TERMINATE_ON_HOST_MAINTENANCE"},
			e)
		assert.Zero(t, time.Since(start), "the long poll must answer at once")
		s.set(keyMaintenance, "NONE")
		assert.Equal(t, EventMaintenanceEnd, (<-events).Kind)
		s.set(keyMaintenance, "MIGRATE_ON_HOST_MAINTENANCE")
		assert.Equal(t, EventMaintenanceMigrate, (<-events).Kind)
		s.set(keyMaintenance, "SOMETHING_NEW")
		assert.Equal(t, EventUnknown, (<-events).Kind)
		s.set(keyPreempted, "TRUE")
		assert.Equal(t, EventPreempted, (<-events).Kind)
		quietFor(t, events, time.Hour)
		stop()
	})
}

func TestWatchSendsExistingNotice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		values := v4Values()
		values[keyPreempted] = "TRUE"
		events, stop := watchServer(t, newMetadataServer(values))
		assert.Equal(t, EventPreempted, (<-events).Kind)
		stop()
	})
}

func TestWatchRetriesFailures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newMetadataServer(v4Values())
		down := true
		s.fault = func(w http.ResponseWriter, _ *http.Request, _ int) bool {
			s.mu.Lock()
			defer s.mu.Unlock()
			if down {
				answer(500, "")(w)
			}
			return down
		}
		events, stop := watchServer(t, s)
		quietFor(t, events, time.Hour)
		n := s.count(keyPreempted)
		assert.Greater(t, n, 3600/6, "it must go on trying")
		assert.Less(t, n, 3600/2, "with pauses of seconds")
		s.mu.Lock()
		down = false
		s.mu.Unlock()
		time.Sleep(10 * time.Second)
		s.set(keyPreempted, "TRUE")
		assert.Equal(t, EventPreempted, (<-events).Kind)
		stop()
	})
}

func TestWatchEndsForMissingKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		events, _ := watchServer(t, newMetadataServer(map[string]string{}))
		keys := map[string]bool{}
		for e := range events { // closed after both keys have ended
			assert.Equal(t, EventWatchEnded, e.Kind)
			assert.ErrorIs(t, e.Err, ErrNotFound)
			keys[e.Key] = true
		}
		assert.Len(t, keys, 2)
	})
}

func TestWatchEndsOnPermanentError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newMetadataServer(v4Values())
		s.fault = func(w http.ResponseWriter, _ *http.Request, _ int) bool { answer(403, "concealed")(w); return true }
		events, _ := watchServer(t, s)
		for e := range events {
			assert.Equal(t, EventWatchEnded, e.Kind)
			assert.ErrorContains(t, e.Err, "403")
		}
		assert.Equal(t, 1, s.count(keyPreempted))
	})
}

func TestWatchStopsWithoutReceiver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		values := v4Values()
		values[keyPreempted] = "TRUE"
		client := NewMetadataClient(MetadataOptions{Transport: servePipe(t, newMetadataServer(values))})
		ctx, cancel := context.WithCancel(t.Context())
		events := client.Watch(ctx)
		synctest.Wait() // Watch is blocked in the send
		cancel()
		synctest.Wait()
		n := 0
		for range events {
			n++
		}
		require.LessOrEqual(t, n, 1)
	})
}

func TestWatchDoesNotPollInBusyLoop(t *testing.T) {
	for _, etag := range []string{"", "always the same"} {
		t.Run(etag, func(t *testing.T) { testNoSpin(t, etag) })
	}
}

func testNoSpin(t *testing.T, etag string) {
	synctest.Test(t, func(t *testing.T) {
		s := newMetadataServer(v4Values())
		s.fault = func(w http.ResponseWriter, _ *http.Request, _ int) bool {
			if etag != "" {
				w.Header().Set("ETag", etag)
			}
			answer(200, "FALSE")(w)
			return true
		}
		events, stop := watchServer(t, s)
		select {
		case e := <-events: // maintenance-event=FALSE is an unknown value
			assert.Equal(t, EventUnknown, e.Kind)
		case <-time.After(time.Minute):
			t.Fatal("no event")
		}
		quietFor(t, events, time.Minute)
		assert.Less(t, s.count(keyPreempted), 20)
		assert.Greater(t, s.count(keyPreempted), 5)
		stop()
	})
}
