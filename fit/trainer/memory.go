package trainer

import (
	"fmt"
	"math"
	"os"
	"strconv"
	"strings"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/internal/hostfacts"
	"github.com/tpustrategy/tpustrategy/logical"
)

// checkMemory returns an error if the CPU devices lack memory for the float32 variables and the
// Adam state of a model with this number of parameters. A step also needs memory for gradients and
// activations, so a model that passes the check may still not fit. For TPUs the compiler reports
// this error.
func (f *Flags) checkMemory(parameters int, memory func() int64) error {
	if f.Devices == 0 {
		return nil
	}
	replicas := f.Replicas
	if replicas == 0 {
		replicas = f.Devices / f.Logical
	}
	copies := func(part logical.StateParts) int64 {
		if f.StateSharding.Parts().Contains(part) {
			return 1
		}
		return int64(replicas)
	}
	required := int64(parameters) * 4 * (copies(logical.Parameter) + 2*copies(logical.OptimizerState))
	if available := memory(); required > available {
		return &errkind.Fault{Op: "memory of the machine", Class: errkind.ResourceExhaustedError,
			Reason: fmt.Sprintf("%d parameters on %d replicas need %s for variables and optimizer state, and %s are free",
				parameters, replicas, gigabytes(required), gigabytes(available)),
			Hint: "use a smaller model, -shard-state parameters or fewer -replicas; -topology compiles for a slice"}
	}
	return nil
}

func gigabytes(n int64) string { return fmt.Sprintf("%.1f GB", float64(n)/1e9) }

// freeMemory returns the free memory in bytes of the machine or of the control group, whichever is
// smaller.
func freeMemory() int64 {
	free := int64(math.MaxInt64)
	if available := hostfacts.ReadFacts("").AvailableBytes; available > 0 {
		free = available
	}
	limit, used := readInt("/sys/fs/cgroup/memory.max"), readInt("/sys/fs/cgroup/memory.current")
	if limit > 0 && used > 0 {
		free = min(free, max(limit-used, 0))
	}
	return free
}

// readInt reads an integer from a file, or returns 0.
func readInt(path string) int64 {
	text, err := os.ReadFile(path)
	if err != nil {
		return 0
	}
	n, _ := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
	return n
}
