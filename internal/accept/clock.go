package accept

import (
	"context"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"
)

// withRunningTime returns a context that ends, with a cause, once so much time has passed in which this
// process had the processors that it asked for. The time that other programs took from it counts
// for nothing, where the system tells: a budget is that of the slice, and not of a busy machine.
func withRunningTime(ctx context.Context, budget time.Duration, cause error) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	go func() {
		before, began := readCPUUsage(), time.Now()
		for left := budget; left > 0; {
			timer := time.NewTimer(left)
			select {
			case <-timer.C:
			case <-ctx.Done():
				timer.Stop()
				return
			}
			now, at := readCPUUsage(), time.Now()
			left -= countedTime(now.minus(before), at.Sub(began))
			if before, began = now, at; left < budget/50 {
				break
			}
		}
		cancel(cause)
	}()
	return ctx, func() { cancel(nil) }
}

// cpuUsage is what threads have had of processors, and how long they have waited for them.
type cpuUsage struct{ used, waited time.Duration }

func (u cpuUsage) minus(before cpuUsage) cpuUsage {
	return cpuUsage{max(u.used-before.used, 0), max(u.waited-before.waited, 0)}
}

// countedTime returns how much of a time counts: all of it where the threads waited for no processor, or
// had all that there are, and otherwise the share of what they asked for that they had.
func countedTime(u cpuUsage, passed time.Duration) time.Duration {
	all := passed * time.Duration(runtime.NumCPU())
	if passed <= 0 || u.waited < passed/20 {
		return passed
	}
	share := max(float64(u.used)/float64(u.used+u.waited), float64(u.used)/float64(all))
	return time.Duration(min(share, 1) * float64(passed))
}

// readCPUUsage returns the processor use of the threads of this process, or zero if /proc is missing.
func readCPUUsage() (all cpuUsage) {
	paths, _ := filepath.Glob("/proc/self/task/*/schedstat")
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			continue // the thread has ended
		}
		fields := strings.Fields(string(text))
		if len(fields) < 2 {
			continue
		}
		had, _ := strconv.ParseInt(fields[0], 10, 64)
		waited, _ := strconv.ParseInt(fields[1], 10, 64)
		all.used, all.waited = all.used+time.Duration(had), all.waited+time.Duration(waited)
	}
	return all
}
