package profile

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/tpustrategy/tpustrategy/pjrt"
	"github.com/tpustrategy/tpustrategy/report/xspace"
	"github.com/tpustrategy/tpustrategy/storage"
	"github.com/tpustrategy/tpustrategy/strategy"
)

// maxEvents limits the number of host events of a recording. An event uses about 100 bytes.
const maxEvents = 1 << 20

// Recorder records the activities of one process and its devices. It is safe for concurrent use.
type Recorder struct {
	devices   *pjrt.Profile
	deviceErr error

	mu                sync.Mutex
	host              string
	startTime         time.Time
	steps, activities []xspace.Event
	step, activity    xspace.Event // current events, if they have a name
	stopped           bool
}

// Start begins to record this process and its devices. If the plugin of the devices has no
// profiler, only the host is recorded.
func Start(s *strategy.TPUStrategy) (*Recorder, error) {
	name, err := os.Hostname()
	if err != nil {
		name = "host"
	}
	r := &Recorder{startTime: time.Now(), host: fmt.Sprintf("%s-%04d", name, s.Process()),
		deviceErr: errors.ErrUnsupported}
	if client := s.System().Client(); client != nil { // devices of tests have no client
		if r.devices, r.deviceErr = client.Plugin().StartProfile(); r.deviceErr != nil &&
			!errors.Is(r.deviceErr, errors.ErrUnsupported) {
			return nil, r.deviceErr
		}
	}
	return r, nil
}

// DeviceError returns nil if the devices are recorded. Otherwise it returns the error of the
// plugin, which matches errors.ErrUnsupported.
func (r *Recorder) DeviceError() error { return r.deviceErr }

// BeginStep records that the previous step has ended and a step begins. Steps are counted from 1.
func (r *Recorder) BeginStep(number int64) {
	r.nextEvent(&r.steps, &r.step, xspace.Event{Name: "train", Step: number})
}

// BeginActivity records that the host begins an activity, such as "input" or "launch". The activity
// lasts until the next call. With an empty name, no activity begins.
func (r *Recorder) BeginActivity(name string) {
	r.nextEvent(&r.activities, &r.activity, xspace.Event{Name: name})
}

// nextEvent ends the current event, appends it to events, and begins the next event.
func (r *Recorder) nextEvent(events *[]xspace.Event, current *xspace.Event, next xspace.Event) {
	now := time.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.stopped {
		return
	}
	if current.Name != "" && len(*events) < maxEvents {
		current.Took = now.Sub(current.Begin)
		*events = append(*events, *current)
	}
	*current = next
	current.Begin = now
}

// Stop ends the recording and writes it to a folder or below a URL, where XProf finds it by the
// name of the run. It returns the name of the written object. Before calling Stop, wait for the
// results of the last recorded steps. A Recorder cannot be used again.
func (r *Recorder) Stop(ctx context.Context, dir, run string) (name string, err error) {
	if r == nil {
		return "", nil
	}
	r.BeginStep(0)
	r.BeginActivity("")
	r.mu.Lock()
	r.stopped = true
	p := xspace.Profile{Begin: r.startTime, End: time.Now(), Host: r.host,
		Lines: []xspace.Line{{Name: "steps", Events: r.steps}, {Name: "run", Events: r.activities}}}
	r.mu.Unlock()
	if r.devices != nil {
		if p.Devices, err = r.devices.Stop(ctx); err != nil {
			return "", err
		}
	}
	data, err := p.Encode()
	if err != nil {
		return "", err
	}
	store, err := storage.Open(ctx, dir)
	if err != nil {
		return "", err
	}
	name = xspace.Path(run, r.host)
	return name, errors.Join(storage.PutBytes(ctx, store, name, data, storage.PutOptions{}), store.Close())
}
