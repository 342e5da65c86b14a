package strategy

import (
	"context"
	"crypto/sha256"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/internal/activity"
	"github.com/tpustrategy/tpustrategy/lowering/module"
	"github.com/tpustrategy/tpustrategy/pjrt"
	"github.com/tpustrategy/tpustrategy/strategy/internal/fault"
	"github.com/tpustrategy/tpustrategy/tpu/system"
)

// A compiler cannot be stopped, and may take longer than whoever asks has time. So a compilation
// goes on when the context of its caller ends, and who asks for the same module again waits for
// that one: a deadline that is too short for a compilation costs tries, not compilations. The
// strategy's Close gives up what goes on then.

// building is a compilation under way. x, err and took are set when done is closed; x belongs to
// who takes the building off the strategy's list.
type building struct {
	cancel context.CancelCauseFunc
	done   chan struct{}
	x      system.Executable
	err    error
	took   time.Duration
}

// buildOnce compiles a module, or waits for the compilation of it that is under way.
func (s *TPUStrategy) buildOnce(ctx context.Context, name string, m *module.Module, opts pjrt.CompileOptions) (system.Executable, error) {
	x, _, err := s.buildWith(ctx, name, m, opts, nil)
	return x, err
}

// buildWith is buildOnce with other work meanwhile, on the caller's goroutine; nil is none. Whose
// work fails does not wait for the compilation, which goes on for a later call. took is the time of
// the compilation alone.
func (s *TPUStrategy) buildWith(ctx context.Context, name string, m *module.Module, opts pjrt.CompileOptions, meanwhile func() error) (x system.Executable, took time.Duration, err error) {
	defer activity.Begin(ctx, activity.Compile, name)()
	hash := sha256.New()
	hash.Write(m.Text)
	fmt.Fprintln(hash, opts.DeviceAssignment) // another program on other devices
	key := [sha256.Size]byte(hash.Sum(nil))
	for {
		b, err := s.startBuilding(ctx, key, name, m, opts)
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
			return nil, 0, fault.Of("compiling "+name+", which goes on for a later call", context.Cause(ctx), "")
		}
		s.mu.Lock()
		mine := s.buildings[key] == b
		if mine {
			delete(s.buildings, key)
		}
		s.mu.Unlock()
		if mine || b.err != nil {
			return b.x, b.took, b.err
		}
		// Another function took it: it had the same module.
	}
}

// startBuilding returns the compilation of the module that is under way, or begins one.
func (s *TPUStrategy) startBuilding(ctx context.Context, key [sha256.Size]byte, name string, m *module.Module, opts pjrt.CompileOptions) (*building, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, ErrClosed
	}
	if b, ok := s.buildings[key]; ok {
		return b, nil
	}
	if ctx.Err() != nil {
		return nil, fault.Of("compiling "+name, context.Cause(ctx), "")
	}
	underWay, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	b := &building{cancel: cancel, done: make(chan struct{})}
	s.buildings[key] = b
	go func() {
		defer close(b.done)
		defer cancel(nil)
		start := time.Now()
		defer func() { b.took = time.Since(start) }()
		b.err = fault.New(errkind.RuntimeError, "compiling "+name, "give Options.Compiler a compiler that returns", "the compiler ended its goroutine") // unless it returns
		defer func() {
			if r := recover(); r != nil {
				b.err = fault.New(errkind.RuntimeError, "compiling "+name, "", "panic: %v\n%s", r, debug.Stack())
			}
		}()
		defer s.compiling(name, m, opts)()
		b.x, b.err = s.build(underWay, name, m, opts)
	}()
	return b, nil
}

// closeBuildings gives up the compilations under way. A compiler cannot be stopped: what it makes
// all the same is closed when it comes, without anybody waiting for it.
func closeBuildings(all map[[sha256.Size]byte]*building) (errs []error) {
	for _, b := range all {
		b.cancel(ErrClosed)
	}
	patience := time.NewTimer(closeGrace)
	defer patience.Stop()
	over := false
	for _, b := range all {
		if !over {
			select {
			case <-b.done:
			case <-patience.C:
				over = true
			}
		}
		select {
		case <-b.done:
			if b.err == nil {
				errs = append(errs, b.x.Close())
			}
		default:
			go func() {
				<-b.done
				if b.err == nil {
					_ = b.x.Close()
				}
			}()
		}
	}
	return errs
}

// closeGrace is how long Close waits for compilations that do not end with their context at once.
const closeGrace = time.Second
