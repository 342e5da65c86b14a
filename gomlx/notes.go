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

// warn writes a line to Options.Log and ignores write errors.
func (b *Backend) warn(text string) {
	if b.opts.Log != nil {
		_, _ = io.WriteString(b.opts.Log, text+"\n")
	}
}

// prefixWriter adds a prefix to lines. Each call of Write results in one call of the underlying
// Write, so that lines of several goroutines do not mix. It is safe for concurrent use.
type prefixWriter struct {
	prefix string
	mu     sync.Mutex
	to     io.Writer
	// hasProgressBar is true if GoMLX's progress bar may be on the same terminal. drawn is true
	// after a program has run, because the bar may then have been drawn. The bar repaints its table
	// by moving the cursor up by the height of the table.
	hasProgressBar bool
	drawn          atomic.Bool
}

// barLines has as many empty lines as the largest table of the progress bar, so that the table does
// not overwrite other lines.
const barLines = "\n\n\n\n\n\n\n\n\n\n\n\n"

// usesProgressBar reports whether this program contains GoMLX's progress bar, and both w and
// standard output are terminals.
func usesProgressBar(w io.Writer) bool {
	f, ok := w.(*os.File)
	info, known := debug.ReadBuildInfo()
	return ok && known && term.IsTerminal(int(f.Fd())) && term.IsTerminal(int(os.Stdout.Fd())) &&
		slices.ContainsFunc(info.Deps, func(m *debug.Module) bool { return m.Path == "github.com/schollz/progressbar/v3" })
}

// Write writes text, which must consist of complete lines.
func (l *prefixWriter) Write(text []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := l.prefix + strings.ReplaceAll(strings.TrimSuffix(string(text), "\n"), "\n", "\n"+l.prefix) + "\n"
	if l.hasProgressBar && l.drawn.Load() {
		all += barLines
	}
	_, err := io.WriteString(l.to, all)
	return len(text), err
}

func writeJSON(w io.Writer, v any) error {
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	return encoder.Encode(v)
}
