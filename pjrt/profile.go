package pjrt

import (
	"context"
	"sync/atomic"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/tpustrategy/tpustrategy/internal/protoint"
	"github.com/tpustrategy/tpustrategy/pjrt/internal/capi"
)

// Profile is a running profiler, which records the activity of a plugin and its devices. It is safe
// for concurrent use.
type Profile struct {
	plugin *Plugin
	handle atomic.Pointer[capi.Profiler] // nil after Stop
}

// StartProfile starts the plugin's profiler, an extension that libtpu and the CUDA plugin implement.
// Without the extension, the error matches errors.ErrUnsupported. A profile includes all activity of
// the process. If two profiles are recorded at the same time, only one of them may contain the devices.
func (p *Plugin) StartProfile() (*Profile, error) {
	if p.api == nil {
		return nil, zeroValueError("start profile", "plugin", "Open")
	}
	handle, err := p.api.StartProfiler(profileOptions())
	if err != nil {
		return nil, p.wrapError("start profile", err)
	}
	r := &Profile{plugin: p}
	r.handle.Store(&handle)
	return r, nil
}

// Stop ends the recording and returns it as an encoded tensorflow.profiler.XSpace message with times in
// nanoseconds since 1970. Package report/xspace converts it to a file. To include a training step, wait
// for its results before Stop. A TPU takes seconds to return its data. If ctx ends first, Stop returns
// the error of ctx and discards the recording. A second Stop returns an error that matches ErrClosed.
func (r *Profile) Stop(ctx context.Context) ([]byte, error) {
	if r == nil || r.plugin == nil {
		return nil, zeroValueError("stop profile", "profile", "Client.Profile")
	}
	handle := r.handle.Swap(nil)
	if handle == nil {
		return nil, opError("stop profile", "", closedError("profile"))
	}
	return callWithContext(ctx, "stop profile", func() ([]byte, error) {
		data, err := r.plugin.api.StopProfiler(*handle)
		return data, r.plugin.wrapError("stop profile", err)
	}, func([]byte) {}, nil)
}

// profileOptions returns an encoded tensorflow.ProfileOptions with the defaults of TensorFlow.
// Without options, a plugin does not record its devices.
func profileOptions() []byte {
	const hostLevel, deviceLevel, version, hloProto = 2, 3, 5, 7
	b := protoint.AppendInt(nil, hostLevel, 2)
	for _, field := range []protowire.Number{deviceLevel, version, hloProto} {
		b = protoint.AppendInt(b, field, 1)
	}
	return b
}
