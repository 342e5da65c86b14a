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

// maxEvents bounds what a recording keeps of the host, about 100 bytes each.
const maxEvents = 1 << 20

// Recorder is a recording under way, of one process. It is safe for concurrent use.
type Recorder struct {
	devices *pjrt.Profile
	missing error

	mu            sync.Mutex
	host          string
	begin         time.Time
	steps, doings []xspace.Event
	step, doing   xspace.Event // under way, if they have a name
	stopped       bool
}

// Start begins a recording of this process and of its devices. Where their plugin has no profiler, the
// host alone is recorded.
func Start(s *strategy.TPUStrategy) (*Recorder, error) {
	name, err := os.Hostname()
	if err != nil {
		name = "host"
	}
	r := &Recorder{begin: time.Now(), host: fmt.Sprintf("%s-%04d", name, s.Process()), missing: errors.ErrUnsupported}
	if client := s.System().Client(); client != nil { // devices of a test have none
		if r.devices, r.missing = client.Plugin().StartProfile(); r.missing != nil && !errors.Is(r.missing, errors.ErrUnsupported) {
			return nil, r.missing
		}
	}
	return r, nil
}

// Devices returns nil if the devices are recorded, and else the plugin's error, which matches
// errors.ErrUnsupported.
func (r *Recorder) Devices() error { return r.missing }

// Step says that a step begins, by its number counted from 1, and that the one before has ended.
func (r *Recorder) Step(number int64) {
	r.turn(&r.steps, &r.step, xspace.Event{Name: "train", Step: number})
}

// Do says what the host turns to, such as "input" or "launch", until the next call. An empty name is
// nothing worth an event.
func (r *Recorder) Do(name string) { r.turn(&r.doings, &r.doing, xspace.Event{Name: name}) }

// turn ends an event and begins the next.
func (r *Recorder) turn(all *[]xspace.Event, under *xspace.Event, next xspace.Event) {
	now := time.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.stopped {
		return
	}
	if under.Name != "" && len(*all) < maxEvents {
		under.Took = now.Sub(under.Begin)
		*all = append(*all, *under)
	}
	*under = next
	under.Begin = now
}

// Stop ends the recording and puts it into a folder or below a URL, where XProf looks for the profile
// of a run of that name. It returns the object's name there. Wait first for the results of the steps
// that are to be in it. A Recorder ends with its first Stop.
func (r *Recorder) Stop(ctx context.Context, place, run string) (name string, err error) {
	if r == nil {
		return "", nil
	}
	r.Step(0)
	r.Do("")
	r.mu.Lock()
	r.stopped = true
	p := xspace.Profile{Begin: r.begin, End: time.Now(), Host: r.host, Lines: []xspace.Line{{Name: "steps", Events: r.steps}, {Name: "run", Events: r.doings}}}
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
	store, err := storage.Open(ctx, place)
	if err != nil {
		return "", err
	}
	name = xspace.Path(run, r.host)
	return name, errors.Join(storage.PutBytes(ctx, store, name, data, storage.PutOptions{}), store.Close())
}
