package gomlx

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

// screen emulates a terminal.
type screen struct {
	rows []string
	row  int
}

func (s *screen) Write(text []byte) (int, error) {
	rest := string(text)
	for rest != "" {
		switch {
		case rest[0] == '\n':
			s.row, rest = s.row+1, rest[1:]
		case strings.HasPrefix(rest, "\x1b["):
			end := strings.IndexAny(rest, "FJhl")
			if n, err := strconv.Atoi(rest[2:end]); err == nil && rest[end] == 'F' {
				s.row = max(s.row-n, 0)
			}
			rest = rest[end+1:]
		default:
			line, _, _ := strings.Cut(rest, "\n")
			line, _, _ = strings.Cut(line, "\x1b")
			for len(s.rows) <= s.row {
				s.rows = append(s.rows, "")
			}
			s.rows[s.row] = line // lines of the table, of the bar and of notes are written from their beginning
			rest = rest[len(line):]
		}
	}
	return len(text), nil
}

// paint emulates an update of GoMLX's progress bar with a number of metrics: it moves the cursor up
// by the height of the previous table and prints the table and the bar again.
func (s *screen) paint(step, metrics int, first bool) {
	fmt.Fprint(s, "\x1b[?25l")
	if !first {
		fmt.Fprintf(s, "\x1b[%dF", metrics+5)
	}
	fmt.Fprintf(s, "+---+\nstep %d\nduration\n", step)
	for i := range metrics {
		fmt.Fprintf(s, "metric %d\n", i)
	}
	fmt.Fprintf(s, "+---+\n%d%%\x1b[J\n\x1b[?25h", step)
}

func TestNotesStayAboveTheTableOfTheBar(t *testing.T) {
	for metrics := range 7 {
		s := &screen{}
		l := &prefixWriter{prefix: "tpustrategy: ", to: s, hasProgressBar: true}
		fmt.Fprintln(l, "early")
		s.paint(1, metrics, true)
		l.drawn.Store(true) // a step has run
		for step := 2; step < 9; step++ {
			if step == 4 || step == 6 {
				fmt.Fprintf(l, "note at %d\nand its second line\n", step)
			}
			s.paint(step, metrics, false)
		}
		all := strings.Join(s.rows, "\n")
		for _, note := range []string{"early", "note at 4", "note at 6"} {
			assert.Equal(t, 1, strings.Count(all, "tpustrategy: "+note), "%d metrics:\n%s", metrics, all)
		}
		assert.Equal(t, 2, strings.Count(all, "tpustrategy: and its second line"))
		table := fmt.Sprintf("+---+\nstep 8\nduration\n%s+---+\n8%%", strings.Join(append(rows(metrics), ""), "\n"))
		assert.True(t, strings.HasSuffix(all, table), "the last table is whole:\n%s", all)
	}
}

func rows(metrics int) (all []string) {
	for i := range metrics {
		all = append(all, fmt.Sprintf("metric %d", i))
	}
	return all
}

// A log, or a program without that bar, has no lines that are empty.
func TestNotesElsewhereAreAsTheyAre(t *testing.T) {
	var to strings.Builder
	assert.False(t, usesProgressBar(&to))
	l := &prefixWriter{to: &to}
	l.drawn.Store(true)
	fmt.Fprintln(l, "note")
	assert.Equal(t, "note\n", to.String())
}
