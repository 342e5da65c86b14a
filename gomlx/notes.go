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

// note writes a line to Options.Notes and ignores write errors.
func (b *Backend) note(text string) {
	if b.opts.Notes != nil {
		_, _ = io.WriteString(b.opts.Notes, text+"\n")
	}
}

// lines writes lines with a prefix. It passes the lines of one Write on in one Write, so that lines
// of several goroutines do not mix. It is safe for concurrent use.
type lines struct {
	prefix string
	mu     sync.Mutex
	to     io.Writer
	// barred is true if GoMLX's progress bar may be on the same terminal, and drawn after it may
	// have been drawn, because a program has run. The progress bar repaints its table by moving the
	// cursor up by the height of the table.
	barred bool
	drawn  atomic.Bool
}

// room keeps lines from being overwritten by the table: as many empty lines as the largest table
// has.
const room = "\n\n\n\n\n\n\n\n\n\n\n\n"

// barOn reports whether the program contains GoMLX's progress bar, and w and standard output are
// terminals.
func barOn(w io.Writer) bool {
	f, ok := w.(*os.File)
	info, known := debug.ReadBuildInfo()
	return ok && known && term.IsTerminal(int(f.Fd())) && term.IsTerminal(int(os.Stdout.Fd())) &&
		slices.ContainsFunc(info.Deps, func(m *debug.Module) bool { return m.Path == "github.com/schollz/progressbar/v3" })
}

// Write writes text, which must consist of complete lines.
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
