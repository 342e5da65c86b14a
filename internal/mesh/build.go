package mesh

import (
	"context"
	"crypto/sha256"
	"fmt"
	"runtime/debug"
	"sync"
	"time"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/internal/activity"
	"github.com/tpustrategy/tpustrategy/internal/patience"
	"github.com/tpustrategy/tpustrategy/pjrt"
	"github.com/tpustrategy/tpustrategy/tpu/system"
)

// A compiler cannot be stopped, and may take longer than whoever asks has time. So a compilation
// goes on when the context of its caller ends, and who asks for the same program again waits for
// that one: a deadline that is too short for a compilation costs tries, not compilations. Close
// gives up what goes on then.

// Compilation describes a compilation that is under way.
type Compilation struct {
	// Name is the program's, and TextBytes the size of its text.
	Name      string
	TextBytes int
	// Replicas and LogicalDevices are the numbers that the program is compiled for.
	Replicas, LogicalDevices int
	// Passed is the time since the compiler began.
	Passed time.Duration
}

type buildKey [sha256.Size]byte

// builds are the compilations under way.
type builds struct {
	mu       sync.Mutex
	underWay map[buildKey]*build // nil once closed
}

// build is a compilation. x, err and took are set when done is closed; x belongs to who takes the
// build off the list.
type build struct {
	cancel context.CancelCauseFunc
	done   chan struct{}
	x      system.Executable
	err    error
	took   time.Duration
}

// Build compiles a program, or waits for the compilation of it that is under way. meanwhile is other
// work of the caller's, on its goroutine; nil is none. Whose work fails does not wait for the
// compilation, which goes on for a later call. took is the time of the compilation alone. The program
// is the caller's to close.
func (m *Machine) Build(ctx context.Context, name string, program pjrt.Program, opts pjrt.CompileOptions, meanwhile func() error) (x system.Executable, took time.Duration, err error) {
	defer activity.Begin(ctx, activity.Compile, name)()
	hash := sha256.New()
	hash.Write(program.Code)
	fmt.Fprintln(hash, opts.DeviceAssignment) // another program on other devices
	key := buildKey(hash.Sum(nil))
	for {
		b, err := m.begin(ctx, key, name, program, opts)
		if err != nil {
			return nil, 0, err
		}
		if meanwhile != nil {
			if err := meanwhile(); err != nil {
				return nil, 0, err
			}
			meanwhile = nil
		}
		select {
		case <-b.done:
		case <-ctx.Done():
			return nil, 0, m.failed("compiling "+name+", which goes on for a later call", context.Cause(ctx))
		}
		m.builds.mu.Lock()
		mine := m.builds.underWay[key] == b
		if mine {
			delete(m.builds.underWay, key)
		}
		m.builds.mu.Unlock()
		if mine || b.err != nil {
			return b.x, b.took, b.err
		}
		// Another caller took it: it had the same program.
	}
}

// begin returns the compilation of the program that is under way, or begins one.
func (m *Machine) begin(ctx context.Context, key buildKey, name string, program pjrt.Program, opts pjrt.CompileOptions) (*build, error) {
	m.builds.mu.Lock()
	defer m.builds.mu.Unlock()
	if m.builds.underWay == nil {
		return nil, m.opts.Closed
	}
	if b, ok := m.builds.underWay[key]; ok {
		return b, nil
	}
	if ctx.Err() != nil {
		return nil, m.failed("compiling "+name, context.Cause(ctx))
	}
	underWay, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	b := &build{cancel: cancel, done: make(chan struct{})}
	m.builds.underWay[key] = b
	go func() {
		defer close(b.done)
		defer cancel(nil)
		start := time.Now()
		defer func() { b.took = time.Since(start) }()
		b.err = m.fault(errkind.RuntimeError, "compiling "+name, "give Options.Compiler a compiler that returns", "the compiler ended its goroutine") // unless it returns
		defer func() {
			if r := recover(); r != nil {
				b.err = m.fault(errkind.RuntimeError, "compiling "+name, "", "panic: %v\n%s", r, debug.Stack())
			}
		}()
		defer m.watch(name, program, opts)()
		if b.x, b.err = m.target(underWay, program, opts); b.err != nil {
			b.err = m.failed("compiling "+name, b.err)
		}
	}()
	return b, nil
}

// watch says of a compilation that it goes on, until stop is called.
func (m *Machine) watch(name string, program pjrt.Program, opts pjrt.CompileOptions) (stop func()) {
	if m.opts.GoesOn == nil {
		return func() {}
	}
	devices := opts.Replicas * opts.Partitions
	c := Compilation{Name: name, TextBytes: len(program.Code), Replicas: max(devices/m.group, 1), LogicalDevices: min(devices, m.group)}
	return patience.Watch(func(passed time.Duration) {
		c.Passed = passed
		m.opts.GoesOn(c)
	})
}

// closeGrace is how long Close waits for compilations that do not end with their context at once.
const closeGrace = time.Second

// closeBuilds gives up the compilations under way, and refuses others. A compiler cannot be stopped:
// what it makes all the same is closed when it comes, without anybody waiting for it.
func (m *Machine) closeBuilds() (errs []error) {
	m.builds.mu.Lock()
	all := m.builds.underWay
	m.builds.underWay = nil
	m.builds.mu.Unlock()
	for _, b := range all {
		b.cancel(m.opts.Closed)
	}
	grace, stop := context.WithTimeout(context.Background(), closeGrace)
	defer stop()
	for _, b := range all {
		select {
		case <-b.done:
		case <-grace.Done():
		}
		select {
		case <-b.done:
			errs = append(errs, b.close())
		default:
			go func() { _ = b.close() }()
		}
	}
	return errs
}

// close closes what the compilation makes, once it has ended.
func (b *build) close() error {
	if <-b.done; b.err != nil {
		return nil
	}
	return b.x.Close()
}
