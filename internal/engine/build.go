package engine

import (
	"context"
	"crypto/sha256"
	"fmt"
	"runtime/debug"
	"sync"
	"time"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/internal/activity"
	"github.com/tpustrategy/tpustrategy/internal/heartbeat"
	"github.com/tpustrategy/tpustrategy/pjrt"
	"github.com/tpustrategy/tpustrategy/tpu/system"
)

// A compiler cannot be interrupted, and may run longer than the deadline of its caller. A
// compilation therefore continues when the context of its caller ends, and a later call with the
// same program waits for that compilation: too short a deadline does not waste the compilation.
// Close abandons running compilations.

// Compilation describes a running compilation.
type Compilation struct {
	// Name is the name of the program. TextBytes is the size of its text.
	Name      string
	TextBytes int
	// The program has Replicas replicas of LogicalDevices devices each.
	Replicas, LogicalDevices int
	// Elapsed is the time since the start of the compilation.
	Elapsed time.Duration
}

type buildKey [sha256.Size]byte

// buildList contains the running compilations by the hash of the program and its devices.
type buildList struct {
	mu      sync.Mutex
	running map[buildKey]*build // nil after Close
}

// build is a running or finished compilation. x, err and took are set when done is closed. The
// caller that removes the build from the list owns the executable x.
type build struct {
	cancel context.CancelCauseFunc
	done   chan struct{}
	x      system.Executable
	err    error
	took   time.Duration
}

// Build compiles a program, or waits for a running compilation of the same program. meanwhile, if
// not nil, is called on the caller's goroutine during the compilation. If meanwhile returns an
// error or ctx is canceled, Build returns an error at once, and the compilation continues for a
// later call. took is the duration of the compilation. The caller must close the executable.
func (m *Runtime) Build(ctx context.Context, name string, program pjrt.Program, opts pjrt.CompileOptions,
	meanwhile func() error) (x system.Executable, took time.Duration, err error) {
	defer activity.Begin(ctx, activity.Compile, name)()
	hash := sha256.New()
	hash.Write(program.Code)
	fmt.Fprintln(hash, opts.DeviceAssignment) // part of the key: another program on other devices
	key := buildKey(hash.Sum(nil))
	for {
		b, err := m.startBuild(ctx, key, name, program, opts)
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
			return nil, 0, m.wrapError("compiling "+name+", which continues for a later call", context.Cause(ctx))
		}
		m.builds.mu.Lock()
		mine := m.builds.running[key] == b
		if mine {
			delete(m.builds.running, key)
		}
		m.builds.mu.Unlock()
		if mine || b.err != nil {
			return b.x, b.took, b.err
		}
		// Another caller with the same program received it.
	}
}

// startBuild returns the running compilation of the program, or starts one.
func (m *Runtime) startBuild(ctx context.Context, key buildKey, name string, program pjrt.Program,
	opts pjrt.CompileOptions) (*build, error) {
	m.builds.mu.Lock()
	defer m.builds.mu.Unlock()
	if m.builds.running == nil {
		return nil, m.opts.Closed
	}
	if b, ok := m.builds.running[key]; ok {
		return b, nil
	}
	if ctx.Err() != nil {
		return nil, m.wrapError("compiling "+name, context.Cause(ctx))
	}
	underWay, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	b := &build{cancel: cancel, done: make(chan struct{})}
	m.builds.running[key] = b
	go func() {
		defer close(b.done)
		defer cancel(nil)
		start := time.Now()
		defer func() { b.took = time.Since(start) }()
		b.err = m.fault(errkind.RuntimeError, "compiling "+name, "give Options.Compiler a compiler that returns",
			"the compiler ended its goroutine") // if it does not return
		defer func() {
			if r := recover(); r != nil {
				b.err = m.fault(errkind.RuntimeError, "compiling "+name, "", "panic: %v\n%s", r, debug.Stack())
			}
		}()
		defer m.reportProgress(name, program, opts)()
		if b.x, b.err = m.compile(underWay, program, opts); b.err != nil {
			b.err = m.wrapError("compiling "+name, b.err)
		}
	}()
	return b, nil
}

// reportProgress calls Options.Progress periodically until stop is called.
func (m *Runtime) reportProgress(name string, program pjrt.Program, opts pjrt.CompileOptions) (stop func()) {
	if m.opts.Progress == nil {
		return func() {}
	}
	devices := opts.Replicas * opts.Partitions
	c := Compilation{Name: name, TextBytes: len(program.Code), Replicas: max(devices/m.group, 1),
		LogicalDevices: min(devices, m.group)}
	return heartbeat.Start(func(passed time.Duration) {
		c.Elapsed = passed
		m.opts.Progress(c)
	})
}

// closeGrace is the time that Close waits for canceled compilations to return.
const closeGrace = time.Second

// closeBuilds cancels the running compilations and rejects new ones. If a compilation does not
// return within closeGrace, its executable is closed in the background later.
func (m *Runtime) closeBuilds() (errs []error) {
	m.builds.mu.Lock()
	all := m.builds.running
	m.builds.running = nil
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

// close waits for the compilation and closes its executable.
func (b *build) close() error {
	if <-b.done; b.err != nil {
		return nil
	}
	return b.x.Close()
}
