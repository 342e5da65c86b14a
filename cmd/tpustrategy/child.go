package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"sync"
)

// Plugins are loaded in child processes only: a compiler that aborts, or is killed
// for its memory, is then an error of this process, and libtpu, which reads its
// environment as it is loaded, gets one of its own.

// childRequest asks a child for one piece of work.
type childRequest struct {
	// Probe opens a plugin and says what it is.
	Probe    *probeRequest    `json:"probe,omitempty"`
	Describe *describeRequest `json:"describe,omitempty"`
	Compile  *compileRequest  `json:"compile,omitempty"`
}

// childAnswer is a child's answer, or its error.
type childAnswer struct {
	Probe    *probeAnswer   `json:"probe,omitempty"`
	Describe *described     `json:"describe,omitempty"`
	Compile  *compileAnswer `json:"compile,omitempty"`
	Error    *failure       `json:"error,omitempty"`
}

// childError is that a child ended without an answer.
type childError struct {
	// Doing says what it was to do.
	Doing string
	// State is how it ended, such as "signal: SIGABRT: abort".
	State string
	// Tail is the end of what it wrote to standard error.
	Tail string
}

func (e *childError) Error() string {
	text := fmt.Sprintf("%s: the process died: %s", e.Doing, e.State)
	if e.State == "signal: killed" {
		text += " (killed from outside, as the kernel does when memory runs out)"
	}
	return text
}

// childEnv keeps a plugin's log to itself. What the user has set stays.
var childEnv = []string{"TPU_LOG_DIR=disabled", "TPU_STDERR_LOG_LEVEL=3", "TF_CPP_MIN_LOG_LEVEL=2", "TPU_MIN_LOG_LEVEL=3"}

// child starts this program again to answer a request. quiet adds childEnv.
func (a *app) child(ctx context.Context, doing string, request childRequest, quiet bool) (*childAnswer, error) {
	input, err := json.Marshal(request)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", doing, err)
	}
	answers, answerEnd, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", doing, err)
	}
	defer answers.Close()
	defer answerEnd.Close()
	cmd := exec.CommandContext(ctx, a.executable)
	cmd.Args = []string{a.argv0, "child"}
	// A signal in a plugin is caught by the Go runtime, whose account of its own
	// goroutines would hide what the plugin said.
	cmd.Env = append(a.environ[:len(a.environ):len(a.environ)], "GOTRACEBACK=none")
	if quiet {
		for _, setting := range childEnv {
			name, _, _ := strings.Cut(setting, "=")
			if a.getenv(name) == "" {
				cmd.Env = append(cmd.Env, setting)
			}
		}
	}
	cmd.Stdin = strings.NewReader(string(input))
	log := &tail{limit: 16 << 10}
	cmd.Stdout, cmd.Stderr = log, log
	cmd.ExtraFiles = []*os.File{answerEnd}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("%s: starting a child process: %w", doing, err)
	}
	answerEnd.Close()
	output, readErr := io.ReadAll(answers)
	waitErr := cmd.Wait()
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("%s: %w", doing, context.Cause(ctx))
	}
	var answer childAnswer
	if err := errors.Join(readErr, json.Unmarshal(output, &answer)); err != nil {
		state := cmd.ProcessState.String()
		if waitErr == nil {
			state = "it gave no answer: " + err.Error()
		}
		text := log.String()
		if at := goSignal.FindStringSubmatchIndex(text); at != nil {
			state, text = "signal: "+text[at[2]:at[3]], strings.TrimSpace(text[:at[0]])
		}
		return nil, &childError{Doing: doing, State: state, Tail: text}
	}
	if answer.Error != nil {
		return nil, answer.Error
	}
	return &answer, nil
}

// goSignal is how the Go runtime reports a signal in C code.
var goSignal = regexp.MustCompile(`(?m)^(SIG[A-Z]+: .+)\nPC=`)

// tail keeps the end of what is written to it.
type tail struct {
	mu    sync.Mutex
	limit int
	data  []byte
	cut   bool
}

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.data = append(t.data, p...)
	if extra := len(t.data) - t.limit; extra > 0 {
		t.data, t.cut = append(t.data[:0], t.data[extra:]...), true
	}
	return len(p), nil
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

// childCmd is the child's side.
type childCmd struct{}

func (childCmd) Run(ctx context.Context, a *app) error {
	answers := os.NewFile(3, "answers")
	if answers == nil {
		return usagef("child: this command is started by tpustrategy itself")
	}
	defer answers.Close()
	var request childRequest
	if err := json.NewDecoder(a.stdin).Decode(&request); err != nil {
		return usagef("child: no request: %w", err)
	}
	answer, err := a.answer(ctx, request)
	if err != nil {
		answer = &childAnswer{Error: failureOf(err)}
	}
	return json.NewEncoder(answers).Encode(answer)
}

// answer does what a request asks.
func (a *app) answer(ctx context.Context, r childRequest) (*childAnswer, error) {
	switch {
	case r.Probe != nil:
		p, err := probe(ctx, *r.Probe)
		return &childAnswer{Probe: p}, err
	case r.Describe != nil:
		d, err := describe(ctx, *r.Describe)
		return &childAnswer{Describe: d}, err
	case r.Compile != nil:
		c, err := compile(ctx, *r.Compile)
		return &childAnswer{Compile: c}, err
	}
	return nil, usagef("child: the request asks for nothing")
}
