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

// asProcesses runs each host as a separate process of this program. This process owns the devices,
// which the hosts use through a socket.
func asProcesses(ctx context.Context, cfg config, stdout, stderr io.Writer) (result trainer.ClassifierResult, err error) {
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
	machine, err := prochost.Listen(base, "unix", filepath.Join(dir, "machine"), prochost.Options{Patience: cfg.StartTimeout, Logger: cfg.log})
	if err != nil {
		return result, err
	}
	defer func() { err = errors.Join(err, machine.Close()) }()
	outcomes := make([]outcome, cfg.hosts)
	screen := &shared{stdout: stdout, stderr: stderr}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var wg sync.WaitGroup
	var first sync.Once
	for i := range cfg.hosts {
		if i != cfg.missing {
			wg.Go(func() {
				outcomes[i].ClassifierResult, outcomes[i].err = startHost(ctx, cfg, machine.Host("", i, cfg.hosts), screen)
				first.Do(func() { time.AfterFunc(min(cfg.StartTimeout, lostAfter), func() { cancel(errLate) }) })
			})
		}
	}
	wg.Wait()
	return tell(cfg, outcomes, stdout)
}

// errLate matches the error of a host whose process is stopped or hangs.
var errLate = errkind.New(errkind.DeadlineExceededError, "it had not ended a while after another host had, and was killed")

// processError is the error of a host's process, with its exit code.
type processError struct {
	*errkind.Fault
	code int
}

func (e *processError) ExitCode() int { return e.code }

// startHost runs a host's process until it exits and returns its result.
func startHost(ctx context.Context, cfg config, host prochost.Host, screen *shared) (result trainer.ClassifierResult, err error) {
	host.Plugin = cfg.Plugin
	env, err := host.Environ()
	if err != nil {
		return result, err
	}
	path, err := os.Executable()
	if err != nil {
		return result, err
	}
	cmd := exec.CommandContext(ctx, path, cfg.args...)
	cmd.Env = append(os.Environ(), append(cfg.environ, env)...)
	cmd.Cancel = func() error {
		if context.Cause(ctx) == errLate {
			return cmd.Process.Kill() // a stopped process does not handle SIGTERM
		}
		return cmd.Process.Signal(syscall.SIGTERM)
	}
	cmd.WaitDelay = 30 * time.Second
	out := &lines{screen: screen, to: screen.stdout, show: host.Process == cfg.first()}
	said := &lines{screen: screen, to: screen.stderr, show: cfg.verbose || host.Process == cfg.first()}
	cmd.Stdout, cmd.Stderr = out, said
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // Ctrl-C reaches this process, which passes one signal on
	if err := cmd.Run(); err != nil {
		last := strings.TrimPrefix(said.last(), "multihost: ")
		if last == "" {
			last = err.Error()
		}
		if cmd.ProcessState.ExitCode() == interrupt.ExitCode && json.Unmarshal([]byte(out.last()), &result) == nil {
			return result, &interrupt.Error{Step: result.Steps, Notice: &interrupt.Notice{Reason: last}}
		}
		failed := &errkind.Fault{Op: fmt.Sprintf("process %d", cmd.Process.Pid), Reason: last, Class: errkind.RuntimeError}
		code := cmd.ProcessState.ExitCode()
		switch {
		case code < 0 && context.Cause(ctx) == errLate:
			failed.Reason, failed.Err = "", errLate
		case code > 1:
			return result, &processError{failed, code}
		}
		return result, failed
	}
	// The last line is the result as JSON.
	if err := json.Unmarshal([]byte(out.last()), &result); err != nil {
		return result, &errkind.Fault{Op: "result", Reason: fmt.Sprintf("%q", out.last()), Err: err, Class: errkind.InternalError}
	}
	return result, nil
}

// oneProcess runs one host in its own process. It prints its error on one line, which the parent
// process shows.
func oneProcess(ctx context.Context, cfg config, host prochost.Host, stderr io.Writer) (trainer.ClassifierResult, error) {
	if cfg.Watchdog.Dir = cfg.Out; cfg.Out == "" {
		cfg.Watchdog.Dir = filepath.Dir(host.Address) // which all hosts share
	}
	cfg.Local.Folder = apart(cfg.Local.Folder, host.Process)
	outcome, err := runHost(ctx, cfg, system.Options{Connect: host.Connect(), Logger: cfg.log.With("host", host.Process)})
	var said bytes.Buffer
	code := trainer.ExitCode(ctx, "multihost", err, &said)
	if code != 0 {
		fmt.Fprintln(stderr, strings.ReplaceAll(strings.TrimSpace(said.String()), "\n", "; "))
	}
	return outcome, trainer.NewExitError(code)
}

// shared is a writer that several hosts share.
type shared struct {
	sync.Mutex
	stdout, stderr io.Writer
}

// lines collects the output of a process. It forwards complete lines, if they are to be shown,
// except the last one, which it keeps.
type lines struct {
	screen *shared
	to     io.Writer
	show   bool
	text   []byte // beginning with the last complete line
}

func (l *lines) Write(p []byte) (int, error) {
	l.text = append(l.text, p...)
	whole := bytes.TrimSuffix(l.text[:bytes.LastIndexByte(l.text, '\n')+1], []byte("\n"))
	cut := bytes.LastIndexByte(whole, '\n') + 1
	if cut == 0 {
		return len(p), nil
	}
	if l.show {
		l.screen.Lock()
		defer l.screen.Unlock()
		if _, err := l.to.Write(l.text[:cut]); err != nil {
			return 0, err
		}
	}
	l.text = append(l.text[:0], l.text[cut:]...)
	return len(p), nil
}

// last returns the last line.
func (l *lines) last() string { return strings.TrimSpace(string(l.text)) }
