//go:build unix

package kills

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tpustrategy/tpustrategy/fit/interrupt"
	"github.com/tpustrategy/tpustrategy/fit/watchdog"
	"github.com/tpustrategy/tpustrategy/internal/test/prochost"
	"github.com/tpustrategy/tpustrategy/strategy/checkpoint"
)

// patience is the timeout of waits between hosts. limit is the time within which the hosts must
// exit after a fault.
const (
	patience = 3 * time.Second
	limit    = 25 * time.Second
)

// harm is a fault that is injected into running hosts at a random moment. The function do returns
// after the fault. If the hosts do not exit because of the fault, do also undoes it.
type harm struct {
	name string
	do   func(c *campaign, l *life, victim int)
	// at is the activity of the victim during the fault: "start", "save", "restore" or "exchange",
	// which is an agreement between hosts. If it is empty, the moment is random.
	at string
	// store contains the faults of the store. They are active from the start.
	store faults
	needs string // "", "others", "tmpfs" or "store"
}

var harms = []harm{
	{name: "SIGKILL of a host", do: func(_ *campaign, l *life, v int) { l.signal(v, syscall.SIGKILL) }},
	{name: "SIGKILL of all hosts", do: func(_ *campaign, l *life, _ int) { l.killed() }},
	{name: "SIGKILL of a host in a save", at: "save", do: func(_ *campaign, l *life,
		v int) {
		l.signal(v, syscall.SIGKILL)
	}},
	{name: "SIGKILL of a host in a restore", at: "restore", do: func(_ *campaign, l *life,
		v int) {
		l.signal(v, syscall.SIGKILL)
	}},
	{name: "SIGKILL of a host in an agreement", at: "exchange", do: func(_ *campaign, l *life,
		v int) {
		l.signal(v, syscall.SIGKILL)
	}},
	{name: "SIGKILL of a host in a start", at: "start", do: func(_ *campaign, l *life,
		v int) {
		l.signal(v, syscall.SIGKILL)
	}},
	{name: "SIGTERM in a start", at: "start", do: (*campaign).terminate},
	{name: "a socket cut in a start", at: "start", do: func(c *campaign, l *life, v int) { l.machine.Cut(l.name, v) }},
	{name: "SIGTERM", do: (*campaign).terminate},
	{name: "SIGSTOP, then SIGKILL", needs: "others", do: func(c *campaign, l *life, v int) {
		c.stop(l, v)
		l.signal(v, syscall.SIGKILL)
	}},
	{name: "SIGSTOP, then SIGCONT", needs: "others", do: func(c *campaign, l *life, v int) {
		c.stop(l, v)
		l.signal(v, syscall.SIGCONT)
	}},
	{name: "a socket cut", do: func(c *campaign, l *life, v int) { l.machine.Cut(l.name, v) }},
	{name: "a store that fails, then SIGKILL of all hosts", needs: "store", store: faults{Fail: 0.3},
		do: func(_ *campaign, l *life, _ int) { l.killed() }},
	{name: "a store that fails, then SIGTERM", needs: "store", store: faults{Fail: 0.3}, do: func(_ *campaign, l *life,
		v int) {
		l.signal(v, syscall.SIGTERM)
	}},
	{name: "a store that is slow, then SIGKILL of all hosts", needs: "store", store: faults{Slow: 200 * time.Millisecond},
		do: func(_ *campaign, l *life, _ int) { l.killed() }},
	{name: "a store that lies, then SIGKILL of all hosts", needs: "store", store: faults{Lie: 0.3},
		do: func(_ *campaign, l *life, _ int) { l.killed() }},
	{name: "a full disk, then SIGKILL of all hosts", needs: "tmpfs", do: (*campaign).fill},
}

func (l *life) signal(v int, s syscall.Signal) { _ = l.hosts[v].cmd.Process.Signal(s) }

// terminate sends SIGTERM to one host. All hosts must exit after the same step and save it.
func (c *campaign) terminate(l *life, v int) {
	l.signal(v, syscall.SIGTERM)
	if hung := l.end(limit); hung != nil {
		c.fail(l, "after SIGTERM to host %d, hosts %v do not end", v, hung)
		return
	}
	taken := int64(-1)
	for i, p := range l.hosts {
		n, interrupted := strings.CutPrefix(p.last(), "interrupted ")
		if !interrupted {
			continue // the host was starting or had finished
		}
		step, _ := strconv.ParseInt(n, 10, 64)
		if taken >= 0 && step != taken {
			c.fail(l, "host %d was interrupted after step %d, another after step %d", i, step, taken)
		}
		taken = step
		if p.code != interrupt.ExitCode {
			c.fail(l, "host %d was interrupted and ended with code %d", i, p.code)
		}
	}
	if taken > 0 {
		c.next = taken // the next life must resume from this step
	}
}

// stop stops a host with SIGSTOP until the other hosts have exited.
func (c *campaign) stop(l *life, v int) {
	l.signal(v, syscall.SIGSTOP)
	late := time.After(limit)
	for i, p := range l.hosts {
		if i == v {
			continue
		}
		select {
		case <-p.ended:
		case <-late:
			c.fail(l, "host %d does not notice that host %d is stopped", i, v)
			return
		}
		if last := p.last(); last != fmt.Sprintf("missing [%d]", v) && last != "done" && l.hosts[v].last() != "done" {
			c.odd(l, "host %d says %q where host %d was stopped", i, last, v)
		}
	}
}

// fill fills the disk, lets the run continue for some steps without saving checkpoints, and kills
// it.
func (c *campaign) fill(l *life, _ int) {
	filler := filepath.Join(c.dir, "filler")
	f, err := os.Create(filler)
	if err != nil {
		c.t.Fatal(err)
	}
	block := make([]byte, 1<<14)
	for len(block) > 0 {
		if _, err = f.Write(block); err != nil {
			block = block[:len(block)/2]
		}
	}
	_ = f.Close() // the disk is full, so errors are expected
	before, _ := l.hosts[0].at()
	l.until(3*time.Second, func() bool {
		step, _ := l.hosts[0].at()
		return step >= before+saveEvery+int64(c.chance.IntN(3))
	})
	l.killed()
	if err := os.Remove(filler); err != nil {
		c.t.Fatal(err)
	}
}

// mountSmall mounts a small file system. It returns false if that is not possible.
func mountSmall(t *testing.T, dir string) bool {
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=2m"); err != nil {
		t.Logf("no small file system can be mounted, so no disk is filled: %v", err)
		return false
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
	})
	return true
}

// campaign is a training run that is killed and restarted until it completes.
type campaign struct {
	t       *testing.T
	machine *prochost.Machine
	chance  *rand.Rand
	dir     string
	tmpfs   bool
	// next is the step from which the next life must resume, or 0 if it is not known.
	next   int64
	saving saving
	// lied is true if the store has corrupted data in this run, so that checkpoints may be damaged.
	lied   bool
	counts map[string]int
	failed bool
}

func (c *campaign) fail(l *life, format string, args ...any) {
	c.failed = true
	c.t.Errorf("%s: "+format+"\n%v", append(append([]any{l.name}, args...), l)...)
}

// odd logs an unexpected event that a busy machine can cause.
func (c *campaign) odd(l *life, format string, args ...any) {
	c.counts["odd"]++
	c.t.Logf("%s: "+format, append([]any{l.name}, args...)...)
}

// live starts the hosts, which resume the run, injects the fault h, if there is one, and waits until
// the hosts have exited. It reports whether the run has completed.
func (c *campaign) live(name string, hosts int, j job, h harm) (through bool) {
	j.Faults = h.store
	j.Faults.Seed, j.Faults.Lie = c.chance.Uint64(), h.store.Lie/float64(hosts)
	c.lied = c.lied || h.store.Lie > 0
	l := begin(c.t, c.machine, name, hosts, j)
	defer l.killed()
	first, victim := l.hosts[0], c.chance.IntN(hosts)
	switch {
	case h.do == nil:
		l.until(time.Minute, first.over)
	case h.at != "":
		times, p := 1+c.chance.IntN(3), l.hosts[victim]
		if h.at == "restore" {
			times = 1 // a life restores only once
		}
		l.until(time.Minute, func() bool { return p.did(h.at) >= times || p.over() })
		time.Sleep(time.Duration(c.chance.IntN(12)) * time.Millisecond)
	case c.chance.IntN(8) == 0: // during startup
		time.Sleep(time.Duration(c.chance.IntN(700)) * time.Millisecond)
	default:
		after := int64(1 + c.chance.IntN(2*saveEvery))
		if !l.until(time.Minute, func() bool {
			step, resumed := first.at()
			return resumed >= 0 && step >= resumed+after
		}) && !first.over() {
			c.fail(l, "no step in a minute")
		}
		time.Sleep(time.Duration(c.chance.IntN(30)) * time.Millisecond)
	}
	known := c.next
	c.next = 0
	if h.do != nil && !first.over() {
		c.counts[h.name]++
		c.counts[fmt.Sprintf("%d hosts", hosts)]++
		h.do(c, l, victim)
	}
	if hung := l.end(limit); hung != nil {
		c.fail(l, "hosts %v hang after %s", hung, h.name)
	}
	c.codes(l, h)
	through = true
	for i, p := range l.hosts {
		_, resumed := p.at()
		if known > 0 && resumed >= 0 && resumed != known && !c.lied {
			c.fail(l, "host %d went on from step %d, the run was saved at step %d", i, resumed, known)
		}
		if known > 0 && resumed < 0 && c.next == 0 {
			c.next = known // this host did not resume
		}
		if other := l.hosts[0].resumed; resumed >= 0 && other >= 0 && resumed != other {
			c.fail(l, "host %d went on from step %d, host 0 from step %d", i, resumed, other)
		}
		if text := p.log(); slices.ContainsFunc([]string{"panic:", "fatal error:", "DATA RACE", "damaged"},
			func(w string) bool {
				return strings.Contains(text, w) && !(w == "damaged" && c.lied)
			}) {
			c.fail(l, "host %d: that must not be", i)
		}
		through = through && p.last() == "done" && p.code == 0
	}
	if c.lied {
		return through && c.repaired(l)
	}
	return through
}

// codes checks the exit codes of hosts that were not killed. They must be the code of success, or
// the code of an interruption or of a missing host, after which a supervisor restarts the hosts.
func (c *campaign) codes(l *life, h harm) {
	if h.store != (faults{}) || h.needs == "tmpfs" {
		return // a failing store or disk may cause other exit codes
	}
	for i, p := range l.hosts {
		if p.signal < 0 && p.code != 0 && p.code != interrupt.ExitCode && p.code != watchdog.ExitCode {
			c.fail(l, "after %s host %d ended with code %d", h.name, i, p.code)
		}
	}
}

// repaired reports whether the last checkpoint of a completed run is intact. If it is damaged, the
// next life must detect that and write it again. If the hosts report that every checkpoint is
// damaged, repaired deletes the files, and the run starts from the beginning.
func (c *campaign) repaired(l *life) bool {
	for _, p := range l.hosts {
		if strings.Contains(p.log(), "every checkpoint is damaged") {
			c.counts["begun anew, as a store had damaged every checkpoint"]++
			if err := errors.Join(os.RemoveAll(c.dir), os.Mkdir(c.dir, 0o755)); err != nil {
				c.t.Fatal(err)
			}
			return false
		}
	}
	m, err := checkpoint.OpenManager(c.t.Context(), filepath.Join(c.dir, "checkpoints"), checkpoint.ManagerOptions{})
	if err != nil {
		c.t.Fatal(err)
	}
	last, err := m.Open(c.t.Context(), steps)
	if err != nil {
		return false
	}
	return errors.Join(last.Verify(c.t.Context()), last.Close()) == nil
}
