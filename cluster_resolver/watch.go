package clusterresolver

import (
	"context"
	"net/url"
	"strings"
	"sync"
	"time"
)

// EventKind is what happened to this machine.
type EventKind int

// Kinds of events.
const (
	// EventPreempted: the machine is being pre-empted; it stops in about 30 seconds.
	EventPreempted EventKind = iota + 1
	// EventMaintenanceTerminate: host maintenance will stop the machine. TPU VMs
	// cannot move while running, so for them this is the usual notice.
	EventMaintenanceTerminate
	// EventMaintenanceMigrate: host maintenance will move the machine while it runs.
	EventMaintenanceMigrate
	// EventMaintenanceEnd: an announced maintenance is over or was called off.
	EventMaintenanceEnd
	// EventUnknown: the server gave a value that this package does not know.
	EventUnknown
	// EventWatchEnded: the server does not offer this key, or there is no server, so no
	// more events of it will come; Err says why.
	EventWatchEnded
)

var eventNames = [...]string{"", "preempted", "maintenance-terminate", "maintenance-migrate", "maintenance-end", "unknown", "watch-ended"}

func (k EventKind) String() string {
	if k < 1 || int(k) >= len(eventNames) {
		return "invalid"
	}
	return eventNames[k]
}

// Event is a notice about this machine.
type Event struct {
	Kind EventKind
	// Key is the metadata key, Value its text.
	Key, Value string
	// Err is set for EventWatchEnded.
	Err error
}

// Keys that Watch follows.
const (
	keyPreempted   = "instance/preempted"
	keyMaintenance = "instance/maintenance-event"
)

// pollTimeout is how long the server holds one request. It ends well before what
// proxies and connection tracking on the way would cut.
const pollTimeout = 60 * time.Second

// Watch follows pre-emption and maintenance notices by long poll and sends them on
// the channel it returns, which it closes when ctx has ended and its goroutines are
// gone, or when no key is left to follow. A notice already there at the start is
// sent; the quiet state is not. Failures are tried again for ever with growing
// pauses, and logged.
//
// The channel is not buffered. While nobody receives, newer values replace older
// ones of the same key, as the server tells only the latest.
//
// The server gives 60 seconds of notice for maintenance only to a machine that has
// asked since the last one, so start watching early.
// Source: "Query metadata server for maintenance event notices" and "Preemptible VM
// instances", cloud.google.com/compute/docs.
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
		asked := time.Now()
		value, next, err := c.poll(ctx, key, etag)
		switch {
		case ctx.Err() != nil:
			return
		case err != nil && !temporary(err):
			send(ctx, events, Event{Kind: EventWatchEnded, Key: key, Err: err})
			return
		case err != nil:
			c.log.Warn("metadata watch failed; trying again", "key", key, "error", err)
			if retry.Sleep(ctx, retry.pause(failures)) != nil {
				return
			}
			failures++
			continue
		}
		failures = 0
		// The same value comes back when the server's own time is up.
		if value != last {
			if e, ok := eventOf(key, last, value); ok && !send(ctx, events, e) {
				return
			}
		}
		// A server that does not hold requests must not be asked in a loop.
		if next == "" || (next == etag && time.Since(asked) < time.Second) {
			if retry.Sleep(ctx, retry.Max) != nil {
				return
			}
		}
		last, etag = value, next
	}
}

func send(ctx context.Context, events chan<- Event, e Event) bool {
	select {
	case events <- e:
		return true
	case <-ctx.Done():
		return false
	}
}

// poll asks once: at once if there is no ETag yet, else for a change since it.
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

// eventOf turns a change of a key into an event; quiet values at the start are none.
func eventOf(key, last, value string) (Event, bool) {
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
