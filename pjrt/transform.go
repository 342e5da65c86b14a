package pjrt

import (
	"sync/atomic"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/pjrt/internal/capi"
)

// Stage is a point of a compilation at which a [Transform] is shown the program.
type Stage int

// The stages. The program is optimized, partitioned and fused at both. After the scheduler its
// instructions stand in the order of their execution; buffers have no addresses yet, and on a TPU
// no instruction has a cost or is asynchronous.
const (
	BeforeScheduler Stage = iota
	AfterScheduler
)

// Transform is a pass of one's own in the compilations of a plugin.
type Transform struct {
	// Name is unique among the plugin's transforms of a stage, which it applies by the order of
	// their registration.
	Name  string
	Stage Stage
	// Apply gets a program, an encoded xla.HloModuleProto, and returns the one to go on with, or nil
	// to leave it as it is. An error, or a panic, ends the compilation, whose error has its text; so
	// does a program that the compiler cannot read. Apply is called by several goroutines, as
	// compilations are, and once for each module that a compilation makes of its program. The bytes
	// are Apply's to keep, and those that it returns the caller's. The compilation waits for it:
	// Apply compiles nothing by this plugin, and registers and closes nothing.
	Apply func(module []byte) ([]byte, error)
}

// Registration is a transform that a plugin applies, until Close. It is safe for concurrent use.
type Registration struct {
	plugin *Plugin
	asked  *questions
	handle atomic.Pointer[capi.Transform] // nil once it was closed
}

// Register has the plugin apply a transform in each compilation of this process that begins from
// now on, by a client and ahead of time. It is an extension, which libtpu has from 0.0.46.3 and the
// CUDA plugin from 0.12; the error of a plugin without it matches errors.ErrUnsupported. Up to 64
// are registered at a time; one more is an error that matches [ResourceExhausted].
//
// What a pass makes of a program the compiler checks for its form only, and a compiler that gets a
// program it has not reckoned with may abort: compile with a transform in a worker (package
// pjrt/worker, whose Probe is one).
func (p *Plugin) Register(t Transform) (*Registration, error) {
	const op = "register transform"
	if p.api == nil {
		return nil, errNotMade(op, "plugin", "Open")
	}
	if t.Name == "" || t.Apply == nil || t.Stage != BeforeScheduler && t.Stage != AfterScheduler {
		return nil, &errkind.Fault{Op: "pjrt: " + op, Reason: "a transform has a name, a stage (BeforeScheduler or AfterScheduler) and Apply", Class: errkind.ValueError}
	}
	asked, err := answerQuestions("transform "+t.Name, func(q capi.Question) ([]byte, error) { return t.Apply(q.Value) })
	if err != nil {
		return nil, wrap(op, t.Name, err)
	}
	handle, err := p.api.RegisterTransform(t.Name, int(t.Stage), asked.shared)
	if err != nil {
		asked.close()
		return nil, wrap(op, t.Name, err)
	}
	r := &Registration{plugin: p, asked: asked}
	r.handle.Store(&handle)
	return r, nil
}

// Close ends the transform, also in compilations under way. It waits until Apply runs no more. A second Close is an error that matches ErrClosed.
func (r *Registration) Close() error {
	if r == nil || r.plugin == nil {
		return nil
	}
	handle := r.handle.Swap(nil)
	if handle == nil {
		return fail("close transform", r.plugin.String(), ErrClosed)
	}
	err := r.plugin.api.ClearTransform(*handle)
	r.asked.close()
	return r.plugin.wrap("close transform", err)
}
