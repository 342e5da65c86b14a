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

// withRunningTime returns a context that is canceled with a cause after the process has run for the
// given time. Time in which other programs used the processors is excluded, if the operating system
// reports it. A busy machine therefore does not cause a timeout.
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
			left -= effectiveTime(now.minus(before), at.Sub(began))
			if before, began = now, at; left < budget/50 {
				break
			}
		}
		cancel(cause)
	}()
	return ctx, func() { cancel(nil) }
}

// cpuUsage contains how long the threads of this process ran on a processor, and how long they
// waited for a processor.
type cpuUsage struct{ used, waited time.Duration }

func (u cpuUsage) minus(before cpuUsage) cpuUsage {
	return cpuUsage{max(u.used-before.used, 0), max(u.waited-before.waited, 0)}
}

// effectiveTime returns the part of the elapsed time that counts toward a time limit. If the threads had
// to wait for processors, the elapsed time is scaled by the fraction of processor time that they received.
func effectiveTime(u cpuUsage, passed time.Duration) time.Duration {
	all := passed * time.Duration(runtime.NumCPU())
	if passed <= 0 || u.waited < passed/20 {
		return passed
	}
	share := max(float64(u.used)/float64(u.used+u.waited), float64(u.used)/float64(all))
	return time.Duration(min(share, 1) * float64(passed))
}

// readCPUUsage returns the total usage of all threads of this process, or zero if /proc is not available.
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
