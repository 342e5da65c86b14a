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

// Command is a program to run.
type Command struct {
	// Path is the path of the program.
	Path string
	// Args are the arguments of the program, including its name.
	Args []string
	// Env is the complete environment.
	Env []string
	// OnStart, if not nil, is called with the process id of the child.
	OnStart func(pid int)
	// OnNotice, if not nil, is called with each line that the child passes to SendNotice, before Run
	// returns.
	OnNotice func(line []byte)
}

// maxResponse is the maximum size of a response in bytes.
const maxResponse = 4 << 30

// Run starts a child process, sends a request to it and returns the response. If ctx ends, Run
// kills the child and returns the cause of ctx. Other errors match [ErrStart] or are an [*Error].
func Run(ctx context.Context, c Command, request []byte) ([]byte, error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	type outcome struct {
		response []byte
		err      error
	}
	done := make(chan outcome, 1)
	go func() {
		// The kernel kills the child when the thread that started it exits.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		response, err := runProcess(ctx, c, request)
		done <- outcome{response, err}
	}()
	o := <-done
	return o.response, o.err
}

func runProcess(ctx context.Context, c Command, request []byte) ([]byte, error) {
	input, lifeline, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer input.Close()
	defer lifeline.Close()
	responses, responseWriter, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer responses.Close()
	defer responseWriter.Close()
	log := &outputTail{limit: 16 << 10}
	cmd := exec.CommandContext(ctx, c.Path)
	cmd.Args = c.Args
	// The Go runtime handles signals in C code. Its long report would hide the output of that code.
	cmd.Env = append(c.Env[:len(c.Env):len(c.Env)], "GOTRACEBACK=none")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = input, log, log
	cmd.ExtraFiles = []*os.File{responseWriter}
	var noticing sync.WaitGroup
	defer noticing.Wait()
	if c.OnNotice != nil {
		notices, noticeWriter, err := os.Pipe()
		if err != nil {
			return nil, err
		}
		defer noticeWriter.Close()
		cmd.ExtraFiles = append(cmd.ExtraFiles, noticeWriter)
		noticing.Go(func() {
			defer notices.Close()
			for r := bufio.NewReader(notices); ; {
				line, err := r.ReadBytes('\n')
				if err != nil {
					return
				}
				c.OnNotice(line[:len(line)-1])
			}
		})
		// Processes that the child has started may keep the pipe open.
		defer func() { _ = notices.SetReadDeadline(time.Now().Add(5 * cmd.WaitDelay)) }()
	}
	killWithParent(cmd)
	cmd.WaitDelay = time.Second // for outputs that other processes keep open
	if err := cmd.Start(); err != nil {
		return nil, startError(c.Path, err)
	}
	if c.OnStart != nil {
		c.OnStart(cmd.Process.Pid)
	}
	input.Close()
	responseWriter.Close()
	var sending sync.WaitGroup
	sending.Go(func() {
		// If the child has crashed, its exit status is reported instead of the write error.
		var size [8]byte
		binary.LittleEndian.PutUint64(size[:], uint64(len(request)))
		if _, err := lifeline.Write(size[:]); err == nil {
			_, _ = lifeline.Write(request)
		}
	})
	stop := context.AfterFunc(ctx, func() { _ = responses.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	data, readErr := io.ReadAll(io.LimitReader(responses, maxResponse))
	// The input is closed after the child has exited, because closing it makes the child exit.
	waitErr := cmd.Wait()
	lifeline.Close()
	sending.Wait()
	switch {
	case ctx.Err() != nil:
		return nil, &contextError{cause: context.Cause(ctx), tail: log.String()}
	case waitErr == nil && readErr == nil && len(data) > 0:
		return data, nil
	}
	state := cmd.ProcessState.String()
	if waitErr == nil {
		state = "it returned no result"
		if readErr != nil {
			state += ": " + readErr.Error()
		}
	}
	if signal := log.signal(); signal != "" {
		state = "signal: " + signal
	}
	return nil, &Error{State: state, OutputTail: log.String()}
}

// contextError reports that the context of Run ended. It contains the output of the child.
type contextError struct {
	cause error
	tail  string
}

func (e *contextError) Error() string { return e.cause.Error() }
func (e *contextError) Unwrap() error { return e.cause }

// OutputTail returns the end of a child's output from an error of [Run].
func OutputTail(err error) string {
	if e := (*Error)(nil); errors.As(err, &e) {
		return e.OutputTail
	}
	if e := (*contextError)(nil); errors.As(err, &e) {
		return e.tail
	}
	return ""
}

// goSignalPattern matches the start of the Go runtime's report of a signal in C code. The report
// contains all goroutines even with GOTRACEBACK=none, and can be longer than the limit of outputTail.
var goSignalPattern = regexp.MustCompile(`(?m)^(SIG[A-Z]+: .+)\nPC=`)

// outputTail is a writer that stores the end of a child's output. If the Go runtime of the child
// reports a signal, outputTail ignores the report and all later output.
type outputTail struct {
	mu        sync.Mutex
	limit     int
	data      []byte
	truncated bool
	goSignal  string // the signal in the report
}

func (t *outputTail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.goSignal != "" {
		return len(p), nil
	}
	// The start of the report may be split over several writes.
	start := max(0, len(t.data)-maxSignalLines)
	t.data = append(t.data, p...)
	if match := goSignalPattern.FindSubmatchIndex(t.data[start:]); match != nil {
		t.goSignal = string(t.data[start+match[2] : start+match[3]])
		t.data = t.data[:start+match[0]]
	}
	if extra := len(t.data) - t.limit; extra > 0 {
		t.data, t.truncated = append(t.data[:0], t.data[extra:]...), true
	}
	return len(p), nil
}

// maxSignalLines is larger than the number of bytes of the line with the signal and the line before.
const maxSignalLines = 256

// signal returns the signal from the Go runtime's report in the output, or an empty string.
func (t *outputTail) signal() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.goSignal
}

// String returns the stored output. If it was truncated, the result starts with a complete line.
func (t *outputTail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	text := string(t.data)
	if _, rest, ok := strings.Cut(text, "\n"); t.truncated && ok {
		text = rest
	}
	return strings.ToValidUTF8(strings.TrimSpace(text), "?")
}
