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

// maxIdle is the number of closed programs that stay compiled.
const maxIdle = 64

// keeping is a Runtime that caches compiled programs. Programs that all hosts have closed stay in
// the cache for the next run.
type keeping struct {
	system.Runtime

	mu       sync.Mutex
	programs map[[sha256.Size]byte]*kept
	idle     []*kept // from the least to the most recently closed
}

// kept is a cached program. It counts its users.
type kept struct {
	system.Executable
	of    *keeping
	key   [sha256.Size]byte
	users int
}

// Loaded returns the executable of the plugin.
func (k *kept) Loaded() *pjrt.LoadedExecutable { return system.UnwrapExecutable(k.Executable) }

// Compile returns the cached program, or compiles the program if it is not in the cache.
// Compilations run one at a time.
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

// Close releases one use of the program. After the last release, the program stays in the cache of
// idle programs, which evicts its oldest entry if it exceeds maxIdle.
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

// Close closes all idle programs. It does not close the underlying runtime.
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
