package pjrt

import (
	"context"
	"sync/atomic"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/tpustrategy/tpustrategy/internal/protoint"
	"github.com/tpustrategy/tpustrategy/pjrt/internal/capi"
)

// Profile records what a plugin and its devices do, until Stop. It is safe for concurrent use.
type Profile struct {
	plugin *Plugin
	handle atomic.Pointer[capi.Profiler] // nil once it was stopped
}

// StartProfile starts a recording through the plugin's profiler extension, which libtpu and the CUDA
// plugin have. The error of a plugin without one matches errors.ErrUnsupported. A plugin records for
// the whole process: of two recordings at a time the devices may be in one only.
func (p *Plugin) StartProfile() (*Profile, error) {
	if p.api == nil {
		return nil, errNotMade("start profile", "plugin", "Open")
	}
	handle, err := p.api.StartProfiler(profileOptions())
	if err != nil {
		return nil, p.wrap("start profile", err)
	}
	r := &Profile{plugin: p}
	r.handle.Store(&handle)
	return r, nil
}

// Stop ends the recording and returns it: an encoded message tensorflow.profiler.XSpace, with times
// in nanoseconds since 1970, which package report/xspace makes a file of. Wait first for the results
// of the steps that are to be in it. A TPU takes seconds to hand its data over; if ctx ends first,
// Stop returns its error, and the recording ends nevertheless. A second Stop is an error that matches
// ErrClosed.
func (r *Profile) Stop(ctx context.Context) ([]byte, error) {
	if r == nil || r.plugin == nil {
		return nil, errNotMade("stop profile", "profile", "Client.Profile")
	}
	handle := r.handle.Swap(nil)
	if handle == nil {
		return nil, fail("stop profile", r.plugin.String(), ErrClosed)
	}
	return await(ctx, "stop profile", func() ([]byte, error) {
		data, err := r.plugin.api.StopProfiler(*handle)
		return data, r.plugin.wrap("stop profile", err)
	}, func([]byte) {}, nil)
}

// profileOptions is a tensorflow.ProfileOptions with what TensorFlow takes where nothing is said. A
// plugin reads it as it stands: without it the devices would not be recorded.
func profileOptions() []byte {
	const hostLevel, deviceLevel, version, hloProto = 2, 3, 5, 7
	b := protoint.AppendInt(nil, hostLevel, 2)
	for _, field := range []protowire.Number{deviceLevel, version, hloProto} {
		b = protoint.AppendInt(b, field, 1)
	}
	return b
}
