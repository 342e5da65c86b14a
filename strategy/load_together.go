package strategy

import (
	"context"
	"errors"
	"fmt"
	"runtime"

	"github.com/tpustrategy/tpustrategy/strategy/internal/fault"
)

// VariableLoad is a value for a variable, in parts.
type VariableLoad struct {
	Variable *Variable
	// Parts is the value, of the variable's shape and dtype.
	Parts Parts
}

// LoadTogether gives variables values in parts: all of them, or none. Each process reads the parts
// that its devices hold. The values come to the devices beside the variables' old ones; then check
// is called, if it is not nil, and if it returns no error the values take the places of the old
// ones. After an error the variables are as they were. Every component of a variable gets the same
// value. While it runs no step may be launched.
//
// Parts are read several at a time, while others are copied to the devices. The host holds a
// sixteenth of its devices' bytes on the way, or a single part that is larger. Errors are those of
// the parts and of check, an [*Error] of kind ValueError for what does not fit, and [ErrClosed].
func (s *TPUStrategy) LoadTogether(ctx context.Context, values []VariableLoad, check func(ctx context.Context) error) error {
	if err := RefuseTracing(ctx, "load", fault.InsteadOfCopying); err != nil {
		return err
	}
	if err := s.runnable("loading variables"); err != nil {
		return err
	}
	if err := s.check(); err != nil {
		return err
	}
	loads := make([]*variableLoad, len(values))
	seen := map[*Variable]bool{}
	for i, x := range values {
		switch {
		case x.Variable == nil || x.Parts == nil:
			return fault.New(ValueError, "load", "give both", "value %d has no variable, or no parts", i)
		case x.Variable.strategy != s:
			return x.Variable.ownedBy(s, "load")
		case seen[x.Variable]:
			return fault.New(ValueError, fmt.Sprintf("variable %q", x.Variable.path), "give each variable one value", "it is given twice")
		}
		seen[x.Variable] = true
		var err error
		if loads[i], err = x.Variable.load(x.Parts); err != nil {
			return err
		}
	}
	readers := min(2, runtime.GOMAXPROCS(0))
	if _, err := s.fill(ctx, loads, readers); err != nil {
		return err
	}
	var err error
	if check != nil {
		err = check(ctx)
	}
	s.machine.Launch.Lock()
	defer s.machine.Launch.Unlock()
	for _, x := range loads {
		if err == nil {
			err = x.variable.live()
		}
	}
	for _, x := range loads {
		if err != nil {
			_ = x.Into.Close()
		}
	}
	if err != nil {
		return err
	}
	var errs []error
	for _, x := range loads {
		errs = append(errs, x.variable.swap(x.Into))
	}
	return errors.Join(errs...)
}

// FreeBytes returns how many bytes are free on the fullest of this process's devices; known is false
// for a plugin that does not say, such as the CPU's, whose devices have the host's memory.
func (s *TPUStrategy) FreeBytes() (free int64, known bool) {
	if s.devices == nil {
		return 0, false
	}
	return s.devices.FreeBytes()
}
