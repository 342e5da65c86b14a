package pjrt

import (
	"sync/atomic"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/pjrt/internal/capi"
)

// Stage is the point in a compilation at which a [Transform] is applied.
type Stage int

// At both stages, the program is optimized, partitioned and fused. After the scheduler,
// instructions are in the order of their execution. Buffers have no addresses yet. On a TPU,
// instructions have no cost and are not asynchronous yet.
const (
	BeforeScheduler Stage = iota
	AfterScheduler
)

// Transform is a compiler pass in Go.
type Transform struct {
	// Name must be unique among the transforms of a stage. Transforms of a stage are applied in the
	// order of their registration.
	Name  string
	Stage Stage
	// Apply transforms an encoded xla.HloModuleProto. It returns the new program, or nil to keep
	// the program. If it returns an error, panics, or returns a program that the compiler cannot
	// decode, the compilation fails with that error.
	//
	// Apply is called once per module of a compilation, and concurrently if compilations are concurrent.
	// It may keep module, and must not modify the result later. Because the compilation waits for it,
	// Apply must not compile with the same plugin, and must not register or close transforms.
	Apply func(module []byte) ([]byte, error)
}

// Registration represents a transform that is registered with a plugin. It is safe for concurrent
// use.
type Registration struct {
	plugin    *Plugin
	callbacks *callbackServer
	handle    atomic.Pointer[capi.Transform] // nil after Close
}

// Register applies a transform in all later compilations of this process with the plugin, for a
// client or ahead of time. It requires an extension that libtpu implements since 0.0.46.3 and the
// CUDA plugin since 0.12. Without the extension, the error matches errors.ErrUnsupported. The limit
// is 64 transforms; if it is exceeded, the error matches [ResourceExhausted].
//
// The compiler checks only the syntax of the new program, and may abort the process if it does not
// support the program. Use transforms in the separate processes of package pjrt/worker.
func (p *Plugin) Register(t Transform) (*Registration, error) {
	const op = "register transform"
	if p.api == nil {
		return nil, zeroValueError(op, "plugin", "Open")
	}
	if t.Name == "" || t.Apply == nil || t.Stage != BeforeScheduler && t.Stage != AfterScheduler {
		return nil, &errkind.Fault{Op: "pjrt: " + op, Class: errkind.ValueError,
			Reason: "a transform needs Name, Apply and a Stage, which is BeforeScheduler or AfterScheduler"}
	}
	callbacks, err := serveCallbacks("transform "+t.Name,
		func(q capi.Request) ([]byte, error) { return t.Apply(q.Value) })
	if err != nil {
		return nil, wrapError(op, t.Name, err)
	}
	handle, err := p.api.RegisterTransform(t.Name, int(t.Stage), callbacks.requests)
	if err != nil {
		callbacks.close()
		return nil, wrapError(op, t.Name, err)
	}
	r := &Registration{plugin: p, callbacks: callbacks}
	r.handle.Store(&handle)
	return r, nil
}

// Close removes the transform, even from running compilations. It waits until Apply has returned. A
// second Close returns an error that matches ErrClosed.
func (r *Registration) Close() error {
	if r == nil || r.plugin == nil {
		return nil
	}
	handle := r.handle.Swap(nil)
	if handle == nil {
		return opError("close transform", "", closedError("transform"))
	}
	err := r.plugin.api.UnregisterTransform(*handle)
	r.callbacks.close()
	return r.plugin.wrapError("close transform", err)
}
