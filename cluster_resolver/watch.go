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
	// EventPreempted says that the machine is being pre-empted and stops in about 30 seconds.
	EventPreempted EventKind = iota + 1
	// EventMaintenanceTerminate says that host maintenance will stop the machine. TPU VMs cannot
	// move while they run, so this is their usual notice.
	EventMaintenanceTerminate
	// EventMaintenanceMigrate says that host maintenance will move the machine while it runs.
	EventMaintenanceMigrate
	// EventMaintenanceEnd says that an announced maintenance is over or was called off.
	EventMaintenanceEnd
	// EventUnknown says that the server gave a value that this package does not know.
	EventUnknown
	// EventWatchEnded says that no more events of this key will come, because the server does not
	// offer the key, or because there is no server. Err says why.
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
	// Key is the metadata key, and Value its text.
	Key, Value string
	// Err is set for EventWatchEnded.
	Err error
}

// Keys that Watch follows.
const (
	keyPreempted   = "instance/preempted"
	keyMaintenance = "instance/maintenance-event"
)

// pollTimeout is how long the server holds one request. It ends well before what proxies and
// connection tracking on the way would cut.
const pollTimeout = 60 * time.Second

// Watch follows pre-emption and maintenance notices by long poll, and sends them on the channel
// that it returns. It closes the channel when ctx has ended and its goroutines are gone, or when no
// key is left to follow. It sends a notice that is there at the start, and nothing if there is
// none. It logs failures and repeats the request for ever, with growing pauses.
//
// The channel is not buffered. While nobody receives, a newer value of a key replaces the older,
// because the server gives only the latest.
//
// The server announces maintenance 60 seconds ahead only to a machine that has asked since the last
// maintenance, so start watching early. Source: "Query metadata server for maintenance event
// notices" and "Preemptible VM instances", cloud.google.com/compute/docs.
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
