package prochost

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/tpustrategy/tpustrategy/pjrt"
	"github.com/tpustrategy/tpustrategy/tpu/system"
)

// maxIdle is how many programs that no run has open stay compiled.
const maxIdle = 64

// keeping is a runtime that keeps programs compiled after they are closed, for the next run.
type keeping struct {
	system.Runtime

	mu       sync.Mutex
	programs map[[sha256.Size]byte]*kept
	idle     []*kept // the one that was closed first comes first
}

// kept is a program of keeping.
type kept struct {
	system.Executable
	of    *keeping
	key   [sha256.Size]byte
	users int
}

// Loaded returns the plugin's program.
func (k *kept) Loaded() *pjrt.LoadedExecutable { return system.UnwrapExecutable(k.Executable) }

// Compile compiles what is not kept. One program is compiled at a time.
func (r *keeping) Compile(ctx context.Context, code pjrt.Program, o pjrt.CompileOptions) (system.Executable, error) {
	hash := sha256.New()
	fmt.Fprintf(hash, "%s\n%d %d %v %t %t %q %v\n", code.Format, o.Replicas, o.Partitions, o.DeviceAssignment, o.SPMD,
		o.Shardy, o.DumpDir, o.Overrides)
	hash.Write(code.Code)
	key := [sha256.Size]byte(hash.Sum(nil))
	r.mu.Lock()
	defer r.mu.Unlock()
	k, ok := r.programs[key]
	if !ok {
		x, err := r.Runtime.Compile(ctx, code, o)
		if err != nil {
			return nil, err
		}
		k = &kept{Executable: x, of: r, key: key}
		r.programs[key] = k
	}
	if k.users++; k.users == 1 {
		r.idle = slices.DeleteFunc(r.idle, func(other *kept) bool { return other == k })
	}
	return k, nil
}

// Close gives the program back, to be kept.
func (k *kept) Close() error {
	r := k.of
	r.mu.Lock()
	defer r.mu.Unlock()
	if k.users--; k.users > 0 {
		return nil
	}
	r.idle = append(r.idle, k)
	if len(r.idle) <= maxIdle {
		return nil
	}
	oldest := r.idle[0]
	r.idle = slices.Delete(r.idle, 0, 1)
	delete(r.programs, oldest.key)
	return oldest.Executable.Close()
}

// Close closes all programs, which nobody uses any more. The runtime below stays open.
func (r *keeping) Close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	var errs []error
	for _, k := range r.idle {
		errs = append(errs, k.Executable.Close())
		delete(r.programs, k.key)
	}
	r.idle = nil
	return errors.Join(errs...)
}
