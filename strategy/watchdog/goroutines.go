package watchdog

import (
	"bytes"
	"fmt"
	"runtime"
	"slices"
	"strings"
)

// The bounds of a text of goroutines.
const (
	maxDump       = 4 << 20 // of all of them
	maxGoroutines = 16 << 10
	maxLines      = 24 // of a goroutine: a frame has two
)

// goroutines are the stacks of this process, the program's own first: what waits in package main or
// in a package of this module before what waits in the libraries alone. Goroutines with the same
// stack are counted.
func goroutines() string {
	buf := make([]byte, 64<<10)
	for {
		n := runtime.Stack(buf, true)
		if n < len(buf) || len(buf) >= maxDump {
			buf = buf[:n]
			break
		}
		buf = make([]byte, 2*len(buf))
	}
	return arrange(string(buf))
}

// arrange orders, counts and bounds the goroutines of a dump.
func arrange(dump string) string {
	type group struct {
		text  string
		rank  int
		count int
	}
	var groups []group
	known := map[string]int{}
	for text := range strings.SplitSeq(dump, "\n\n") {
		head, stack, _ := strings.Cut(strings.TrimSpace(text), "\n")
		if head == "" || strings.Contains(stack, "watchdog.goroutines(") {
			continue // this one
		}
		key := frames(stack)
		if i, ok := known[key]; ok {
			groups[i].count++
			continue
		}
		known[key] = len(groups)
		lines := strings.Split(stack, "\n")
		if len(lines) > maxLines {
			lines = append(lines[:maxLines], "...")
		}
		groups = append(groups, group{head + "\n" + strings.Join(lines, "\n"), rank(stack), 1})
	}
	slices.SortStableFunc(groups, func(a, b group) int { return a.rank - b.rank })
	var b bytes.Buffer
	for i, g := range groups {
		text := g.text
		if g.count > 1 {
			text = fmt.Sprintf("%d goroutines like this:\n%s", g.count, text)
		}
		if b.Len()+len(text) > maxGoroutines {
			fmt.Fprintf(&b, "... and %d more stacks\n", len(groups)-i)
			break
		}
		b.WriteString(text + "\n\n")
	}
	return strings.TrimSpace(b.String())
}

// frames are the functions of a stack, without their arguments.
func frames(stack string) string {
	var b strings.Builder
	for line := range strings.SplitSeq(stack, "\n") {
		if strings.HasPrefix(line, "\t") {
			continue
		}
		if i := strings.LastIndexByte(line, '('); i > 0 {
			line = line[:i]
		}
		b.WriteString(line + "\n")
	}
	return b.String()
}

// module is the module's path, of the functions of its packages.
const module = "github.com/tpustrategy/tpustrategy/"

// rank orders stacks: the goroutine that takes the steps, the program's own, the module's, others,
// and the watchdog's at last.
func rank(stack string) int {
	switch {
	case strings.Contains(stack, module+"strategy/watchdog.(*Watchdog)."):
		return 4
	case strings.Contains(stack, module+"strategy/fit.Run("), strings.Contains(stack, "\nmain.main("), strings.HasPrefix(stack, "main."):
		return 0
	case strings.Contains(stack, "\nmain."):
		return 1
	case strings.Contains(stack, module):
		return 2
	}
	return 3
}
