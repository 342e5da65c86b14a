package child

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"strings"
	"sync"
	"time"
)

// Command says which program to start.
type Command struct {
	// Path is the program.
	Path string
	// Args are the program's arguments, the first of them its name.
	Args []string
	// Env is its whole environment.
	Env []string
	// Started is told the child's process id once it runs; nil is nobody.
	Started func(pid int)
	// Notices are told, a line at a time and before the answer, what the child's work notes; nil is
	// nobody.
	Notices func(line []byte)
}

// maxAnswer bounds what is read of an answer.
const maxAnswer = 4 << 30

// Run starts a child, gives it a request and returns its answer. Errors match
// [ErrStart], or are [*Error], and where ctx ends, which kills the child, its cause.
func Run(ctx context.Context, c Command, request []byte) ([]byte, error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	type outcome struct {
		answer []byte
		err    error
	}
	done := make(chan outcome, 1)
	go func() {
		// The kernel ends the child with the thread that started it: this one must last.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		answer, err := run(ctx, c, request)
		done <- outcome{answer, err}
	}()
	o := <-done
	return o.answer, o.err
}

func run(ctx context.Context, c Command, request []byte) ([]byte, error) {
	input, lifeline, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer input.Close()
	defer lifeline.Close()
	answers, answerEnd, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer answers.Close()
	defer answerEnd.Close()
	log := &tail{limit: 16 << 10}
	cmd := exec.CommandContext(ctx, c.Path)
	cmd.Args = c.Args
	// A signal in C code is caught by the Go runtime, whose account of its own goroutines would
	// hide what that code said: let it be short.
	cmd.Env = append(c.Env[:len(c.Env):len(c.Env)], "GOTRACEBACK=none")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = input, log, log
	cmd.ExtraFiles = []*os.File{answerEnd}
	var noticing sync.WaitGroup
	defer noticing.Wait()
	if c.Notices != nil {
		notices, noticeEnd, err := os.Pipe()
		if err != nil {
			return nil, err
		}
		defer noticeEnd.Close()
		cmd.ExtraFiles = append(cmd.ExtraFiles, noticeEnd)
		noticing.Go(func() {
			defer notices.Close()
			for r := bufio.NewReader(notices); ; {
				line, err := r.ReadBytes('\n')
				if err != nil {
					return
				}
				c.Notices(line[:len(line)-1])
			}
		})
		// What the child has started may hold the pipe for longer than the child lives.
		defer func() { _ = notices.SetReadDeadline(time.Now().Add(5 * cmd.WaitDelay)) }()
	}
	isolate(cmd)
	cmd.WaitDelay = time.Second // for outputs that something else holds
	if err := cmd.Start(); err != nil {
		return nil, notStarted(c.Path, err)
	}
	if c.Started != nil {
		c.Started(cmd.Process.Pid)
	}
	input.Close()
	answerEnd.Close()
	var sending sync.WaitGroup
	sending.Go(func() {
		// A child that has died does not read; how it died says more.
		var size [8]byte
		binary.LittleEndian.PutUint64(size[:], uint64(len(request)))
		if _, err := lifeline.Write(size[:]); err == nil {
			_, _ = lifeline.Write(request)
		}
	})
	stop := context.AfterFunc(ctx, func() { _ = answers.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	data, readErr := io.ReadAll(io.LimitReader(answers, maxAnswer))
	// The input ends after the child, or the child would take that for its parent's end.
	waitErr := cmd.Wait()
	lifeline.Close()
	sending.Wait()
	switch {
	case ctx.Err() != nil:
		return nil, &interruption{cause: context.Cause(ctx), tail: log.String()}
	case waitErr == nil && readErr == nil && len(data) > 0:
		return data, nil
	}
	state := cmd.ProcessState.String()
	if waitErr == nil {
		state = "it gave no answer"
		if readErr != nil {
			state += ": " + readErr.Error()
		}
	}
	if signal := log.signal(); signal != "" {
		state = "signal: " + signal
	}
	return nil, &Error{State: state, Tail: log.String()}
}

// interruption is the end of a context, with what the child had said until then.
type interruption struct {
	cause error
	tail  string
}

func (e *interruption) Error() string { return e.cause.Error() }
func (e *interruption) Unwrap() error { return e.cause }

// Tail returns the end of what a child wrote whose work failed with err.
func Tail(err error) string {
	if e := (*Error)(nil); errors.As(err, &e) {
		return e.Tail
	}
	if e := (*interruption)(nil); errors.As(err, &e) {
		return e.tail
	}
	return ""
}

// goSignal is how the Go runtime begins its report of a signal in C code. The report lists all
// goroutines whatever GOTRACEBACK says, and can be longer than what is kept.
var goSignal = regexp.MustCompile(`(?m)^(SIG[A-Z]+: .+)\nPC=`)

// tail keeps the end of what is written to it, up to the Go runtime's report of a signal.
type tail struct {
	mu     sync.Mutex
	limit  int
	data   []byte
	cut    bool
	caught string // the signal of the report, as the runtime names it
}

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.caught != "" {
		return len(p), nil
	}
	// The beginning of the report may come in pieces.
	from := max(0, len(t.data)-reportStart)
	t.data = append(t.data, p...)
	if at := goSignal.FindSubmatchIndex(t.data[from:]); at != nil {
		t.caught = string(t.data[from+at[2] : from+at[3]])
		t.data = t.data[:from+at[0]]
	}
	if extra := len(t.data) - t.limit; extra > 0 {
		t.data, t.cut = append(t.data[:0], t.data[extra:]...), true
	}
	return len(p), nil
}

// reportStart is more than the bytes of the line that names a signal and of the line before it.
const reportStart = 256

// signal names the signal that ended the program, if the Go runtime reported it.
func (t *tail) signal() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.caught
}

// String is the end of the text, from the start of a line.
func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	text := string(t.data)
	if _, rest, ok := strings.Cut(text, "\n"); t.cut && ok {
		text = rest
	}
	return strings.ToValidUTF8(strings.TrimSpace(text), "?")
}
