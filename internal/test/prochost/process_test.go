//go:build unix

package prochost_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/internal/test/plugintest"
	"github.com/tpustrategy/tpustrategy/internal/test/prochost"
	"github.com/tpustrategy/tpustrategy/tpu/simhost"
	"github.com/tpustrategy/tpustrategy/tpu/system"
)

// TestHostProcess is the main program of a host process: it launches sum until a launch fails, and
// prints a line for each launch.
func TestHostProcess(t *testing.T) {
	h, here, err := prochost.FromEnviron(os.Getenv)
	if !here {
		t.Skip("other tests start this")
	}
	require.NoError(t, err)
	ctx := context.Background()
	sys, err := system.Open(ctx, system.Options{Connect: h.Connect()})
	if err == nil {
		defer sys.Close()
		var x system.Executable
		if x, err = compileSum(sys, "sum", 0, 1, 2, 3); err == nil {
			defer x.Close()
			for n := 1; err == nil; n++ {
				var got float32
				if got, err = launch(ctx, sys, x, float32(h.Process)); err == nil {
					fmt.Println("launched", n, got)
				}
			}
		}
	}
	var lost *simhost.LostError
	var missing *simhost.MissingError
	var machine *prochost.MachineError
	switch {
	case errors.As(err, &lost):
		fmt.Println("lost", lost.Name)
	case errors.As(err, &missing):
		fmt.Println("missing", missing.Names)
	case errors.As(err, &machine):
		fmt.Println("no machine")
	}
	fmt.Println("ended", err)
}

// child is a host in a child process.
type child struct {
	*exec.Cmd
	lines chan string
}

func start(t *testing.T, h prochost.Host) *child {
	t.Helper()
	h.Plugin = plugintest.Path(t, "cpu")
	env, err := h.Environ()
	require.NoError(t, err)
	c := &child{exec.Command(os.Args[0], "-test.run=^TestHostProcess$", "-test.v"), make(chan string, 1<<16)}
	c.Env = append(os.Environ(), env)
	c.Stderr = os.Stderr
	out, err := c.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, c.Start())
	go func() {
		defer close(c.lines)
		for s := bufio.NewScanner(out); s.Scan(); {
			c.lines <- s.Text()
		}
	}()
	t.Cleanup(func() {
		_ = c.Process.Signal(syscall.SIGCONT)
		_ = c.Process.Kill()
		_ = c.Wait()
	})
	return c
}

// until waits for an output line with the given prefix.
func (c *child) until(t *testing.T, prefix string) string {
	t.Helper()
	late := time.After(time.Minute)
	for {
		select {
		case line, ok := <-c.lines:
			if !ok {
				t.Fatalf("the host ended without a line %q", prefix)
			}
			if strings.HasPrefix(line, prefix) {
				return line
			}
		case <-late:
			t.Fatalf("no line %q", prefix)
		}
	}
}

// TestHostsAreProcessesThatCanBeKilled checks the errors of the other hosts when one host process
// is killed, stopped or disconnected.
func TestHostsAreProcessesThatCanBeKilled(t *testing.T) {
	m := listen(t, 4, prochost.Options{Patience: 2 * time.Second})
	for _, c := range []struct {
		name string
		do   func(run string, c *child) error
		want string
	}{
		{"killed", func(_ string, c *child) error { return c.Process.Kill() }, "lost host 1"},
		{"stopped", func(_ string, c *child) error { return c.Process.Signal(syscall.SIGSTOP) }, "missing [host 1]"},
		{"cut off", func(run string, _ *child) error {
			if !m.Cut(run, 1) {
				return errors.New("it is not there")
			}
			return nil
		}, "lost host 1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var hosts []*child
			for i := range 4 {
				hosts = append(hosts, start(t, m.Host(c.name, i, 4)))
			}
			for _, h := range hosts {
				assert.Equal(t, "launched 3 6", h.until(t, "launched 3"))
			}
			began := time.Now()
			require.NoError(t, c.do(c.name, hosts[1]))
			word, _, _ := strings.Cut(c.want, " ")
			for _, i := range []int{0, 2, 3} {
				assert.Equal(t, c.want, hosts[i].until(t, word))
			}
			assert.Less(t, time.Since(began), 20*time.Second)
			require.NoError(t, hosts[1].Process.Signal(syscall.SIGCONT), "where it is stopped")
			for i, h := range hosts {
				if i != 1 || c.name == "cut off" {
					require.NoError(t, h.Wait())
				}
			}
		})
	}
	assert.Equal(t, 1, m.Compiled(), "hosts of all runs had one program")
}

func TestAHostThatDoesNotComeIsNamed(t *testing.T) {
	m := listen(t, 4, prochost.Options{Patience: 500 * time.Millisecond, Name: func(i int) string {
		return []string{"red",
			"green"}[i]
	}})
	_, err := system.Open(context.Background(), system.Options{Connect: host(t, m, "run", 1, 2).Connect()})
	var missing *simhost.MissingError
	require.ErrorAs(t, err, &missing)
	assert.Equal(t, []string{"red"}, missing.Names)
	// If the host has connected before and exited, the other hosts fail without waiting for the
	// timeout.
	m = listen(t, 4, prochost.Options{})
	dying := start(t, m.Host("again", 0, 2))
	require.Eventually(t, func() bool { return len(m.Present("again")) == 1 }, time.Minute, time.Millisecond)
	time.AfterFunc(200*time.Millisecond, func() { _ = dying.Process.Kill() })
	_, err = system.Open(context.Background(), system.Options{Connect: host(t, m, "again", 0, 2).Connect()})
	require.ErrorContains(t, err, "host 0 is in run")
	_, err = system.Open(context.Background(), system.Options{Connect: host(t, m, "again", 1, 4).Connect()})
	require.ErrorContains(t, err, "counts 4 hosts")
	four := listen(t, 4, prochost.Options{})
	dying = start(t, four.Host("four", 0, 4))
	require.Eventually(t, func() bool { return len(four.Present("four")) == 1 }, time.Minute, time.Millisecond)
	time.AfterFunc(300*time.Millisecond, func() { _ = dying.Process.Kill() })
	_, err = system.Open(context.Background(), system.Options{Connect: host(t, four, "four", 1, 4).Connect()})
	var lost *simhost.LostError
	require.ErrorAs(t, err, &lost)
	assert.Equal(t, "host 0", lost.Name)
}

func TestAMachineThatIsGoneIsAnErrorOfEachHost(t *testing.T) {
	m := listen(t, 4, prochost.Options{})
	hosts := []*child{start(t, m.Host("run", 0, 2)), start(t, m.Host("run", 1, 2))}
	for _, h := range hosts {
		h.until(t, "launched 2")
	}
	require.NoError(t, m.Close())
	for _, h := range hosts {
		h.until(t, "no machine")
	}
	_, err := host(t, m, "run", 0, 1).Connect()(context.Background())
	var gone *prochost.MachineError
	require.ErrorAs(t, err, &gone)
	assert.Contains(t, err.Error(), "cannot be reached")
}
