//go:build unix

package kills

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/tpustrategy/tpustrategy/internal/test/plugintest"
	"github.com/tpustrategy/tpustrategy/internal/test/prochost"
)

// process is a host process and its reported progress.
type process struct {
	cmd *exec.Cmd

	mu      sync.Mutex
	said    []string
	doing   map[string]int // number of reports by activity
	step    int64          // the last reported step, or -1
	resumed int64          // the step from which the host resumed, or -1
	stderr  bytes.Buffer
	ended   chan struct{}
	code    int
	signal  syscall.Signal
}

// life is the lifetime of the hosts, from their common start to the exit of the last one.
type life struct {
	machine *prochost.Machine
	name    string
	hosts   []*process
	news    chan struct{} // receives a value after each report or exit
}

// begin starts the host processes.
func begin(t *testing.T, m *prochost.Machine, name string, hosts int, j job) *life {
	t.Helper()
	l := &life{machine: m, name: name, news: make(chan struct{}, 1)}
	text, err := json.Marshal(j)
	if err != nil {
		t.Fatal(err)
	}
	for i := range hosts {
		h := m.Host(name, i, hosts)
		h.Plugin = plugintest.Path(t, "cpu")
		env, err := h.Environ()
		if err != nil {
			t.Fatal(err)
		}
		p := &process{cmd: exec.Command(os.Args[0]), step: -1, resumed: -1, doing: map[string]int{},
			ended: make(chan struct{})}
		// Limit the Go threads, because many processes share few processors.
		p.cmd.Env = append(os.Environ(), env, jobVariable+"="+string(text), "GOMAXPROCS=2", "TF_CPP_MIN_LOG_LEVEL=2")
		p.cmd.Stderr = &locked{to: &p.stderr, mu: &p.mu}
		out, err := p.cmd.StdoutPipe()
		if err == nil {
			err = p.cmd.Start()
		}
		if err != nil {
			t.Fatal(err)
		}
		l.hosts = append(l.hosts, p)
		go func() {
			for s := bufio.NewScanner(out); s.Scan(); {
				p.hear(s.Text())
				select {
				case l.news <- struct{}{}:
				default:
				}
			}
			_ = p.cmd.Wait() // ProcessState contains the exit status
			status := p.cmd.ProcessState.Sys().(syscall.WaitStatus)
			p.code, p.signal = status.ExitStatus(), -1
			if status.Signaled() {
				p.signal = status.Signal()
			}
			close(p.ended)
			select {
			case l.news <- struct{}{}:
			default:
			}
		}()
	}
	return l
}

// locked is a writer to a buffer that other goroutines read.
type locked struct {
	to *bytes.Buffer
	mu *sync.Mutex
}

func (l *locked) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.to.Write(p)
}

func (p *process) hear(line string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	word, number, _ := strings.Cut(line, " ")
	if word == "doing" {
		p.doing[number]++
		return
	}
	p.said = append(p.said, line)
	n, err := strconv.ParseInt(number, 10, 64)
	switch {
	case err != nil:
	case word == "step":
		p.step = n
	case word == "resumed":
		p.resumed = n
	}
}

// at returns the last reported step and the step from which the host resumed.
func (p *process) at() (step, resumed int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.step, p.resumed
}

// did returns how often the host has reported an activity.
func (p *process) did(what string) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.doing[what]
}

// log returns the standard error of the host.
func (p *process) log() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.stderr.String()
}

// last returns the last line of the host that is not an activity.
func (p *process) last() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.said) == 0 {
		return ""
	}
	return p.said[len(p.said)-1]
}

// over reports whether the host has exited.
func (p *process) over() bool {
	select {
	case <-p.ended:
		return true
	default:
		return false
	}
}

// until waits for a condition. It returns false if all hosts exit or the time limit expires first.
func (l *life) until(limit time.Duration, is func() bool) bool {
	late := time.After(limit)
	for {
		if is() {
			return true
		}
		over := true
		for _, p := range l.hosts {
			over = over && p.over()
		}
		if over {
			return is()
		}
		select {
		case <-l.news:
		case <-late:
			return false
		}
	}
}

// end waits until all hosts have exited. It kills the hosts that exceed the time limit and returns
// their indices.
func (l *life) end(limit time.Duration) (hung []int) {
	late := time.After(limit)
	for i, p := range l.hosts {
		select {
		case <-p.ended:
		case <-late:
			hung = append(hung, i)
			_ = p.cmd.Process.Signal(syscall.SIGQUIT) // prints the goroutines
			select {
			case <-p.ended:
			case <-time.After(time.Second):
				_ = p.cmd.Process.Kill()
				<-p.ended
			}
			late = time.After(time.Millisecond)
		}
	}
	return hung
}

// killed kills all hosts.
func (l *life) killed() {
	for _, p := range l.hosts {
		_ = p.cmd.Process.Kill()
	}
	for _, p := range l.hosts {
		<-p.ended
	}
}

// String describes the state and the last report of each host.
func (l *life) String() string {
	var b strings.Builder
	for i, p := range l.hosts {
		step, resumed := p.at()
		log := inOurs(p.log())
		fmt.Fprintf(&b, "host %d: resumed %d, step %d, %q, code %d, signal %d\n%s", i, resumed, step, p.last(), p.code,
			p.signal, log)
	}
	return b.String()
}

// inOurs removes the goroutines outside packages strategy and fit from a log.
func inOurs(log string) string {
	blocks := strings.Split(log, "\n\n")
	ours := blocks[:0]
	for _, b := range blocks {
		if !strings.HasPrefix(b, "goroutine ") || strings.Contains(b, "tpustrategy/strategy/") || strings.Contains(b,
			"tpustrategy/fit") {
			ours = append(ours, b)
		}
	}
	log = strings.Join(ours, "\n\n")
	return log[:min(len(log), 12000)]
}
