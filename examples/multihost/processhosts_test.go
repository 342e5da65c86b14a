package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/examples/digits/perceptron"
	"github.com/tpustrategy/tpustrategy/fit/interrupt"
	"github.com/tpustrategy/tpustrategy/fit/trainer"
	"github.com/tpustrategy/tpustrategy/internal/test/prochost"
	"github.com/tpustrategy/tpustrategy/tpu/system"
)

// runProcesses runs each host as a separate process of this program. This process owns the devices,
// which the hosts use through a socket.
func runProcesses(ctx context.Context, cfg config, stdout, stderr io.Writer) (result trainer.ClassifierResult,
	err error) {
	if _, err := perceptron.New(cfg.data, cfg.Flags); err != nil {
		return result, err // each host would report the same error
	}
	base, err := system.Open(ctx, system.Options{CPUDevices: cfg.Devices, Plugin: cfg.Plugin})
	if err != nil {
		return result, err
	}
	defer func() { err = errors.Join(err, base.Close()) }()
	dir, err := os.MkdirTemp("", "multihost-")
	if err != nil {
		return result, err
	}
	defer os.RemoveAll(dir)
	machine, err := prochost.Listen(base, "unix", filepath.Join(dir, "machine"),
		prochost.Options{Patience: cfg.StartTimeout, Logger: cfg.log})
	if err != nil {
		return result, err
	}
	defer func() { err = errors.Join(err, machine.Close()) }()
	outcomes := make([]outcome, cfg.hosts)
	screen := &sharedOutput{stdout: stdout, stderr: stderr}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var wg sync.WaitGroup
	var first sync.Once
	for i := range cfg.hosts {
		if i != cfg.missing {
			wg.Go(func() {
				outcomes[i].ClassifierResult, outcomes[i].err = runHostProcess(ctx, cfg, machine.Host("", i, cfg.hosts), screen)
				first.Do(func() { time.AfterFunc(min(cfg.StartTimeout, lostTimeout), func() { cancel(errHostLate) }) })
			})
		}
	}
	wg.Wait()
	return printResult(cfg, outcomes, stdout)
}

// errHostLate matches the error of a host whose process is stopped or hangs.
var errHostLate = errkind.New(errkind.DeadlineExceededError,
	"it had not ended a while after another host had, and was killed")

// processError is the error of a host's process, with its exit code.
type processError struct {
	*errkind.Fault
	code int
}

func (e *processError) ExitCode() int { return e.code }

// runHostProcess runs a host's process until it exits and returns its result.
func runHostProcess(ctx context.Context, cfg config, host prochost.Host,
	screen *sharedOutput) (result trainer.ClassifierResult, err error) {
	host.Plugin = cfg.Plugin
	env, err := host.Environ()
	if err != nil {
		return result, err
	}
	path, err := os.Executable()
	if err != nil {
		return result, err
	}
	cmd := exec.CommandContext(ctx, path, "-test.run=^TestHostProcess$")
	cmd.Env = append(os.Environ(), append(cfg.args, env)...)
	cmd.Cancel = func() error {
		if context.Cause(ctx) == errHostLate {
			return cmd.Process.Kill() // a stopped process does not handle SIGTERM
		}
		return cmd.Process.Signal(syscall.SIGTERM)
	}
	cmd.WaitDelay = 30 * time.Second
	out := &lineWriter{output: screen, w: screen.stdout, isShown: host.Process == cfg.firstHost()}
	said := &lineWriter{output: screen, w: screen.stderr, isShown: cfg.verbose || host.Process == cfg.firstHost()}
	cmd.Stdout, cmd.Stderr = out, said
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // Ctrl-C reaches this process, which passes one signal on
	if err := cmd.Run(); err != nil {
		last := strings.TrimPrefix(said.lastLine(), "multihost: ")
		if last == "" {
			last = err.Error()
		}
		if cmd.ProcessState.ExitCode() == interrupt.ExitCode && json.Unmarshal([]byte(out.lastLine()), &result) == nil {
			return result, &interrupt.Error{Step: result.Steps, Notice: &interrupt.Notice{Reason: last}}
		}
		failed := &errkind.Fault{Op: fmt.Sprintf("process %d", cmd.Process.Pid), Reason: last, Class: errkind.RuntimeError}
		code := cmd.ProcessState.ExitCode()
		switch {
		case code < 0 && context.Cause(ctx) == errHostLate:
			failed.Reason, failed.Err = "", errHostLate
		case code > 1:
			return result, &processError{failed, code}
		}
		return result, failed
	}
	// The last line is the result as JSON.
	if err := json.Unmarshal([]byte(out.lastLine()), &result); err != nil {
		return result, &errkind.Fault{Op: "result", Reason: fmt.Sprintf("%q", out.lastLine()), Err: err,
			Class: errkind.InternalError}
	}
	return result, nil
}

// runInHostProcess runs one host in its own process. It prints its error on one line, which the
// parent process shows.
func runInHostProcess(ctx context.Context, cfg config, host prochost.Host,
	stderr io.Writer) (trainer.ClassifierResult, error) {
	if cfg.Watchdog.Dir = cfg.Out; cfg.Out == "" {
		cfg.Watchdog.Dir = filepath.Dir(host.Address) // which all hosts share
	}
	cfg.Local.Folder = hostFolder(cfg.Local.Folder, host.Process)
	outcome, err := runHost(ctx, cfg, system.Options{Connect: host.Connect(), Logger: cfg.log.With("host", host.Process)})
	var said bytes.Buffer
	code := trainer.ExitCode(ctx, "multihost", err, &said)
	if code != 0 {
		fmt.Fprintln(stderr, strings.ReplaceAll(strings.TrimSpace(said.String()), "\n", "; "))
	}
	return outcome, trainer.NewExitError(code)
}

// sharedOutput is a writer that several hosts share.
type sharedOutput struct {
	sync.Mutex
	stdout, stderr io.Writer
}

// lineWriter collects the output of a process. It forwards complete lines, if they are to be shown,
// except the last one, which it keeps.
type lineWriter struct {
	output  *sharedOutput
	w       io.Writer
	isShown bool
	text    []byte // beginning with the last complete line
}

func (l *lineWriter) Write(p []byte) (int, error) {
	l.text = append(l.text, p...)
	whole := bytes.TrimSuffix(l.text[:bytes.LastIndexByte(l.text, '\n')+1], []byte("\n"))
	cut := bytes.LastIndexByte(whole, '\n') + 1
	if cut == 0 {
		return len(p), nil
	}
	if l.isShown {
		l.output.Lock()
		defer l.output.Unlock()
		if _, err := l.w.Write(l.text[:cut]); err != nil {
			return 0, err
		}
	}
	l.text = append(l.text[:0], l.text[cut:]...)
	return len(p), nil
}

// lastLine returns the last line.
func (l *lineWriter) lastLine() string { return strings.TrimSpace(string(l.text)) }
