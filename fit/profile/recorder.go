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

// Recorder is a running recording of one process. It is safe for concurrent use.
type Recorder struct {
	devices *pjrt.Profile
	missing error

	mu            sync.Mutex
	host          string
	begin         time.Time
	steps, doings []xspace.Event
	step, doing   xspace.Event // current events, if they have a name
	stopped       bool
}

// Start starts a recording of this process and its devices. If the plugin of the devices has no
// profiler, only the host is recorded.
func Start(s *strategy.TPUStrategy) (*Recorder, error) {
	name, err := os.Hostname()
	if err != nil {
		name = "host"
	}
	r := &Recorder{begin: time.Now(), host: fmt.Sprintf("%s-%04d", name, s.Process()), missing: errors.ErrUnsupported}
	if client := s.System().Client(); client != nil { // devices of tests have no client
		if r.devices, r.missing = client.Plugin().StartProfile(); r.missing != nil && !errors.Is(r.missing, errors.ErrUnsupported) {
			return nil, r.missing
		}
	}
	return r, nil
}

// Devices returns nil if the devices are recorded. Otherwise it returns the plugin's error, which
// matches errors.ErrUnsupported.
func (r *Recorder) Devices() error { return r.missing }

// Step records that a step begins and that the previous step has ended. Steps are counted from 1.
func (r *Recorder) Step(number int64) {
	r.turn(&r.steps, &r.step, xspace.Event{Name: "train", Step: number})
}

// Do records that the host begins an activity, such as "input" or "launch", which lasts until the
// next call. With an empty name nothing is recorded.
func (r *Recorder) Do(name string) { r.turn(&r.doings, &r.doing, xspace.Event{Name: name}) }

// turn ends the current event and begins the next one.
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

// Stop ends the recording and writes it to a folder or below a URL, where XProf finds it as a run
// with this name. It returns the name of the written object. Before calling Stop, wait for the
// results of the last recorded steps. A Recorder cannot be used again.
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
