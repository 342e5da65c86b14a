package gomlx

import (
	"encoding/json"
	"io"
	"os"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"golang.org/x/term"
)

// note writes a line to Options.Notes. What cannot be written is lost: it is no reason to stop.
func (b *Backend) note(text string) {
	if b.opts.Notes != nil {
		_, _ = io.WriteString(b.opts.Notes, text+"\n")
	}
}

// lines writes lines that say who speaks. One call of Write writes them, so that those of several
// goroutines do not mix. It is safe for concurrent use.
type lines struct {
	prefix string
	mu     sync.Mutex
	to     io.Writer
	// barred says that GoMLX's progress bar may be on the same screen, and drawn that it is there by
	// now, as a program has run. It repaints its table by going up as many lines as that has.
	barred bool
	drawn  atomic.Bool
}

// room is what keeps lines above the table: as many lines as the largest has, for the next to be
// painted on.
const room = "\n\n\n\n\n\n\n\n\n\n\n\n"

// barOn says whether a program has GoMLX's progress bar, and a screen that shows it and w.
func barOn(w io.Writer) bool {
	f, ok := w.(*os.File)
	info, known := debug.ReadBuildInfo()
	return ok && known && term.IsTerminal(int(f.Fd())) && term.IsTerminal(int(os.Stdout.Fd())) &&
		slices.ContainsFunc(info.Deps, func(m *debug.Module) bool { return m.Path == "github.com/schollz/progressbar/v3" })
}

// Write writes whole lines.
func (l *lines) Write(text []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := l.prefix + strings.ReplaceAll(strings.TrimSuffix(string(text), "\n"), "\n", "\n"+l.prefix) + "\n"
	if l.barred && l.drawn.Load() {
		all += room
	}
	_, err := io.WriteString(l.to, all)
	return len(text), err
}

// writeJSON writes a value as JSON.
func writeJSON(w io.Writer, v any) error {
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	return encoder.Encode(v)
}
