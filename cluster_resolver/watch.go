package clusterresolver

import (
	"context"
	"net/url"
	"strings"
	"sync"
	"time"
)

// EventKind is the kind of an [Event].
type EventKind int

// The kinds of events.
const (
	// EventPreempted means that the host is being preempted and stops in about 30 seconds.
	EventPreempted EventKind = iota + 1
	// EventMaintenanceTerminate means that host maintenance will stop the VM. This is the usual
	// notice for TPU VMs, which cannot be migrated while they run.
	EventMaintenanceTerminate
	// EventMaintenanceMigrate means that host maintenance will migrate the VM while it runs.
	EventMaintenanceMigrate
	// EventMaintenanceEnd means that an announced maintenance has ended or was canceled.
	EventMaintenanceEnd
	// EventUnknown means that the server returned an unknown value.
	EventUnknown
	// EventWatchEnded means that there will be no more events for the key. Err is the reason: the
	// server does not have the key, or there is no server.
	EventWatchEnded
)

var eventNames = [...]string{"", "preempted", "maintenance-terminate", "maintenance-migrate", "maintenance-end",
	"unknown", "watch-ended"}

// String returns the name of the kind, such as "preempted".
func (k EventKind) String() string {
	if k < 1 || int(k) >= len(eventNames) {
		return "invalid"
	}
	return eventNames[k]
}

// Event is a notice about this host.
type Event struct {
	Kind EventKind
	// Key is the metadata key, and Value its value.
	Key, Value string
	// Err is set for EventWatchEnded.
	Err error
}

// Keys that Watch polls.
const (
	keyPreempted   = "instance/preempted"
	keyMaintenance = "instance/maintenance-event"
)

// pollTimeout is the maximum duration of a long poll. It is shorter than typical timeouts of
// proxies and connection tracking.
const pollTimeout = 60 * time.Second

// Watch sends notices of preemption and maintenance on the returned channel. A notice that already
// exists is sent at the start. Watch uses long polls, logs failures, and retries them indefinitely
// with growing pauses. It closes the channel when ctx is done and its goroutines have exited, or
// when no key is left to poll.
//
// The channel is not buffered. A slow receiver gets only the latest value of a key.
//
// The server announces maintenance 60 seconds ahead only to hosts that have queried the key since the
// last maintenance, so call Watch at the start of the program. The sources are "Query metadata server
// for maintenance event notices" and "Preemptible VM instances", cloud.google.com/compute/docs.
func (c *MetadataClient) Watch(ctx context.Context) <-chan Event {
	events := make(chan Event)
	var wg sync.WaitGroup
	for _, key := range []string{keyPreempted, keyMaintenance} {
		wg.Go(func() { c.watch(ctx, key, events) })
	}
	go func() {
		wg.Wait()
		close(events)
	}()
	return events
}

func (c *MetadataClient) watch(ctx context.Context, key string, events chan<- Event) {
	retry := c.retry.withDefaults()
	last, etag, failures := "", "", 0
	for ctx.Err() == nil {
		start := time.Now()
		value, next, err := c.poll(ctx, key, etag)
		switch {
		case ctx.Err() != nil:
			return
		case err != nil && !isTemporary(err):
			sendEvent(ctx, events, Event{Kind: EventWatchEnded, Key: key, Err: err})
			return
		case err != nil:
			c.logger.Warn("metadata watch failed; retrying", "key", key, "error", err)
			if retry.Sleep(ctx, retry.backoff(failures)) != nil {
				return
			}
			failures++
			continue
		}
		failures = 0
		// The server returns the same value if the long poll times out.
		if value != last {
			if e, ok := newEvent(key, last, value); ok && !sendEvent(ctx, events, e) {
				return
			}
		}
		// Do not poll in a busy loop if the server does not support long polls.
		if next == "" || (next == etag && time.Since(start) < time.Second) {
			if retry.Sleep(ctx, retry.Max) != nil {
				return
			}
		}
		last, etag = value, next
	}
}

func sendEvent(ctx context.Context, events chan<- Event, e Event) bool {
	select {
	case events <- e:
		return true
	case <-ctx.Done():
		return false
	}
}

// poll sends one request for a key and returns its value and the new ETag. Without an ETag, the
// server responds immediately. With an ETag, it responds when the value changes.
func (c *MetadataClient) poll(ctx context.Context, key, etag string) (value, next string, err error) {
	limit := c.retry.withDefaults().Timeout
	query := key
	if etag != "" {
		query += "?wait_for_change=true&timeout_sec=60&last_etag=" + url.QueryEscape(etag)
		limit += pollTimeout
	}
	call, cancel := context.WithTimeout(withETag(ctx, &next), limit)
	defer cancel()
	value, err = c.client.GetWithContext(call, query)
	if err != nil {
		return "", "", &MetadataError{key, err}
	}
	return strings.TrimSpace(value), next, nil
}

// newEvent returns the event for a key whose value has changed from last to value. The second
// result is false if the change requires no notice.
func newEvent(key, last, value string) (Event, bool) {
	e := Event{Key: key, Value: value, Kind: EventUnknown}
	switch key + "=" + value {
	case keyPreempted + "=FALSE":
		return Event{}, false
	case keyPreempted + "=TRUE":
		e.Kind = EventPreempted
	case keyMaintenance + "=NONE":
		e.Kind = EventMaintenanceEnd
		return e, last != ""
	case keyMaintenance + "=TERMINATE_ON_HOST_MAINTENANCE":
		e.Kind = EventMaintenanceTerminate
	case keyMaintenance + "=MIGRATE_ON_HOST_MAINTENANCE":
		e.Kind = EventMaintenanceMigrate
	}
	return e, true
}
