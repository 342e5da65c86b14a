//go:build unix

package watchdog

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// child is the configuration of a host process.
type child struct {
	Fault       string
	Host, Hosts int
	Steps       int
	Place, Meet string
	MinTimeout  time.Duration
	Pause       time.Duration // duration for which the host is stopped
}

// said is a line of a child: a report, or the time at which the fault began.
type said struct {
	Time   time.Time
	Begins bool     `json:",omitempty"`
	First  *Finding `json:",omitempty"`
}

// TestHostProcess is the host process that the tests below start.
func TestHostProcess(t *testing.T) {
	text := os.Getenv("WATCHDOG_TEST_HOST")
	if text == "" {
		t.Skip("started by other tests")
	}
	var c child
	require.NoError(t, json.Unmarshal([]byte(text), &c))
	var out sync.Mutex
	say := func(s said) {
		out.Lock()
		defer out.Unlock()
		s.Time = time.Now()
		line, _ := json.Marshal(s)
		fmt.Fprintf(os.Stdout, "%s\n", line)
	}
	conn, err := net.Dial("unix", c.Meet)
	require.NoError(t, err)
	answers := bufio.NewReader(conn)
	i := slices.IndexFunc(faults, func(f fault) bool { return f.name == c.Fault })
	var f fault
	if i >= 0 {
		f = faults[i]
	}
	o := Options{Host: c.Host, Hosts: c.Hosts, Run: "run", Name: "w", Dir: c.Place, MinTimeout: c.MinTimeout,
		CancelDelay: c.MinTimeout, Exit: os.Exit,
		OnReport: func(r Report) {
			for _, f := range r.Findings {
				say(said{First: &f})
			}
		}}
	if f.goes {
		o.CancelDelay = 20 * c.MinTimeout
	}
	if f.opts != nil {
		f.opts(c.Host, &o)
	}
	if f.cause == InCompile || f.cause == InHook {
		o.FirstTimeout = 3 * c.MinTimeout
	}
	w, err := Start(t.Context(), o)
	require.NoError(t, err)
	ctx, stop := w.Context(t.Context())
	defer stop()
	h := &host{Watchdog: w, i: c.Host, ctx: ctx, dice: rand.New(rand.NewPCG(7, uint64(c.Host)))}
	begin := sync.OnceFunc(func() { say(said{Begins: true}) })
	h.meet = func(_ context.Context, call string) error {
		if _, err := fmt.Fprintln(conn, call); err != nil {
			return err
		}
		_, err := answers.ReadString('\n') // cannot be canceled, like a launch on a TPU
		return err
	}
	h.hush = func(d time.Duration) {
		if d == 0 {
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		}
		_ = exec.Command("sh", "-c", fmt.Sprintf("sleep %v; kill -CONT %d", c.Pause.Seconds(), os.Getpid())).Start()
		_ = syscall.Kill(os.Getpid(), syscall.SIGSTOP)
	}
	h.lose = func() { // the link to the shared folder becomes invalid
		_ = os.Remove(c.Place)
		_ = os.WriteFile(c.Place, nil, 0o644)
	}
	h.at = func(h *host, place string, step int) error {
		if f.cause == Exited && c.Host == f.host && place == "input" && step == 45 {
			begin()
			return errLeave
		}
		if f.at != nil && c.Host == f.host {
			f.at(h, place, step, begin)
		}
		return nil
	}
	if f.cause == ClockSkew || f.cause == Missing {
		begin()
	}
	err = h.run(c.Steps)
	_ = w.Close(err)
	if errors.Is(err, errLeave) {
		os.Exit(3)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(4)
	}
	os.Exit(0)
}

// serve lets hosts meet: each call is answered when all hosts have made it.
func serve(l net.Listener, hosts int) {
	var mu sync.Mutex
	waiting := map[string][]net.Conn{}
	for {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		go func() {
			calls := bufio.NewScanner(conn)
			for calls.Scan() {
				call := calls.Text()
				mu.Lock()
				waiting[call] = append(waiting[call], conn)
				if all := waiting[call]; len(all) == hosts {
					for _, c := range all {
						fmt.Fprintln(c)
					}
					delete(waiting, call)
				}
				mu.Unlock()
			}
		}()
	}
}

// outcome is the result of a child.
type outcome struct {
	code   int
	signal syscall.Signal
	said   []said
	stderr string
}

// processes runs eight host processes with a fault.
func processes(t *testing.T, name string, steps int, floor, pause time.Duration, without int) (all []outcome) {
	dir, err := os.MkdirTemp("", "watch") // the path of a socket must be short
	require.NoError(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	require.NoError(t, os.Mkdir(filepath.Join(dir, "run"), 0o755))
	meet := filepath.Join(dir, "meet")
	l, err := net.Listen("unix", meet)
	require.NoError(t, err)
	defer l.Close()
	const hosts = 8
	go serve(l, hosts)
	all = make([]outcome, hosts)
	var wg sync.WaitGroup
	for i := range hosts {
		if i == without {
			continue
		}
		place := filepath.Join(dir, "place-"+strconv.Itoa(i))
		require.NoError(t, os.Symlink("run", place))
		c, err := json.Marshal(child{Fault: name, Host: i, Hosts: hosts, Steps: steps, Place: place, Meet: meet,
			MinTimeout: floor, Pause: pause})
		require.NoError(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
		cmd := exec.CommandContext(ctx, os.Args[0], "-test.run=^TestHostProcess$")
		cmd.Env = append(os.Environ(), "WATCHDOG_TEST_HOST="+string(c), "GOMAXPROCS=2")
		var out, errs bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &errs
		require.NoError(t, cmd.Start())
		wg.Go(func() {
			defer cancel()
			_ = cmd.Wait()
			state := cmd.ProcessState.Sys().(syscall.WaitStatus)
			all[i].code, all[i].stderr = state.ExitStatus(), errs.String()
			if state.Signaled() {
				all[i].signal = state.Signal()
			}
			for line := range strings.Lines(out.String()) {
				var s said
				if json.Unmarshal([]byte(line), &s) == nil {
					all[i].said = append(all[i].said, s)
				}
			}
		})
	}
	wg.Wait()
	return all
}

// namedByProcesses triggers a fault on one of eight host processes. All other hosts must name it
// within 10 seconds, and if the run cannot continue, each must end with the exit code.
func namedByProcesses(t *testing.T, f fault, floor time.Duration) {
	steps, pause := 400, 3*floor
	switch f.cause {
	case Silent:
		steps = 100
	case Slow:
		steps = 45 + int(max(12*time.Second, 3*floor)/(300*time.Millisecond))
	case StoreUnreachable, OperationFailed, ClockSkew:
		steps = int(max(8*time.Second, 3*floor) / (12 * time.Millisecond))
	}
	without := -1
	if f.cause == Missing {
		without = f.host
	}
	all := processes(t, f.name, steps, floor, pause, without)
	began := time.Time{}
	for _, o := range all {
		for _, s := range o.said {
			if s.Begins && (began.IsZero() || f.cause == Missing || f.cause == ClockSkew) {
				began = s.Time
			}
		}
	}
	require.False(t, began.IsZero(), "the fault did not begin")
	var longest time.Duration
	for i, o := range all {
		if i == f.host && slices.Contains([]Cause{Silent, Exited, Missing}, f.cause) {
			continue
		}
		var first *said
		for k := range o.said {
			if s := &o.said[k]; s.First != nil && first == nil {
				first = s
			}
		}
		if assert.NotNil(t, first, "host %d says nothing\n%s", i, o.stderr) {
			assert.Equal(t, []any{f.host, f.cause}, []any{first.First.Host, first.First.Cause}, "host %d says %s", i,
				first.First)
			longest = max(longest, first.Time.Sub(began))
			if i == (f.host+1)%8 {
				t.Logf("host %d: %s", i, first.First)
			}
		}
		if want := map[bool]int{true: 0, false: ExitCode}[f.goes]; i != f.host || !f.goes {
			assert.Equal(t, want, o.code, "host %d\n%s", i, o.stderr)
		}
	}
	if f.cause == Silent && !f.goes {
		assert.Equal(t, syscall.SIGKILL, all[f.host].signal)
	}
	t.Logf("named on all within %.1f s", longest.Seconds())
	assert.LessOrEqual(t, longest, 10*time.Second)
}

// TestDeadAndStoppedProcessesAreNamed kills one of eight processes by a signal, and stops another.
func TestDeadAndStoppedProcessesAreNamed(t *testing.T) {
	for _, f := range faults {
		if f.cause == Silent {
			t.Run(f.name, func(t *testing.T) {
				t.Parallel()
				namedByProcesses(t, f, 2*time.Second)
			})
		}
	}
}

// TestEachFaultOfProcesses triggers each of the faults on one of eight processes, with the
// watchdog's default times: make test-watchdog.
func TestEachFaultOfProcesses(t *testing.T) {
	if os.Getenv("TPUSTRATEGY_WATCHDOG") == "" {
		t.Skip("set TPUSTRATEGY_WATCHDOG=1, as make test-watchdog does")
	}
	for _, f := range faults {
		t.Run(f.name, func(t *testing.T) { namedByProcesses(t, f, 5*time.Second) })
	}
}
