package watchdog

import (
	"fmt"
	"runtime/pprof"
	"slices"
	"strings"
)

// maxGoroutines bounds a text of goroutines, in bytes.
const maxGoroutines = 64 << 10

// goroutines are the stacks of this process, the program's own first, as package runtime/pprof writes
// them: those that are alike are counted.
func goroutines() string {
	var b strings.Builder
	_ = pprof.Lookup("goroutine").WriteTo(&b, 1)
	return arrange(b.String())
}

// arrange orders and bounds the goroutines of a profile.
func arrange(profile string) string {
	_, text, _ := strings.Cut(profile, "\n")
	stacks := strings.Split(strings.TrimSpace(text), "\n\n")
	slices.SortStableFunc(stacks, func(a, b string) int { return rank(a) - rank(b) })
	all := strings.Join(stacks, "\n\n")
	if len(all) > maxGoroutines {
		all = all[:maxGoroutines] + fmt.Sprintf("\n... and %d bytes more", len(all)-maxGoroutines)
	}
	return all
}

// module is the module's path, of the functions of its packages.
const module = "github.com/tpustrategy/tpustrategy/"

// rank orders stacks: the goroutine that takes the steps, the program's own, the module's, others,
// and the watchdog's at last.
func rank(stack string) int {
	if strings.Contains(stack, module+"strategy/watchdog.(*Watchdog).") {
		return 5
	}
	parts := []string{module + "strategy/fit.Run+", "\tmain.main+", "\tmain.", module, ""}
	return slices.IndexFunc(parts, func(part string) bool { return strings.Contains(stack, part) })
}
