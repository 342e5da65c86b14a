//go:build unix

package fit_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/gomlx/gomlx/ml/train/optimizer"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/fit"
	"github.com/tpustrategy/tpustrategy/fit/interrupt"
	"github.com/tpustrategy/tpustrategy/fit/watchdog"
	"github.com/tpustrategy/tpustrategy/internal/test/plugintest"
	"github.com/tpustrategy/tpustrategy/internal/test/prochost"
	"github.com/tpustrategy/tpustrategy/internal/test/strategytest"
	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/strategy/train"
	"github.com/tpustrategy/tpustrategy/tpu/system"
)

// TestWatchedHost is the program of a host: it trains, and process 2 stops itself.
func TestWatchedHost(t *testing.T) {
	h, here, err := prochost.FromEnviron(os.Getenv)
	if !here {
		t.Skip("started by TestAStoppedProcessEndsTheOthers")
	}
	require.NoError(t, err)
	ctx := t.Context()
	sys, err := system.Open(ctx, system.Options{Connect: h.Connect()})
	require.NoError(t, err)
	s, err := strategy.New(sys, strategy.Options{Replicas: 4})
	require.NoError(t, err)
	o := quick(os.Getenv("FIT_TEST_PLACE"))
	o.Exit, o.MinTimeout, o.CancelDelay, o.Logger = os.Exit, 2*time.Second, time.Second,
		slog.New(slog.NewTextHandler(os.Stderr, nil))
	step := strategytest.OK(train.New(s, strategytest.SeededStore(), optimizer.Adam().LearningRate(0.01).Done(),
		denseLoss(1), train.Options{}))
	_, err = fit.Run(ctx, step, blocking(-1, nil), fit.Options{Steps: 5000, Every: 5}, fit.Watch(o),
		fit.Each(20, func(_ context.Context, st *fit.State) error {
			if h.Process == 2 && st.Step() == 40 {
				return syscall.Kill(os.Getpid(), syscall.SIGSTOP)
			}
			return nil
		}))
	fmt.Fprintln(os.Stderr, err)
	os.Exit(interrupt.ExitCodeFor(err))
}

// TestAStoppedProcessEndsTheOthers stops one of four processes with SIGSTOP. They access their
// devices through a socket. The others report the process and end with the exit code.
func TestAStoppedProcessEndsTheOthers(t *testing.T) {
	sys := plugintest.System(t, 4)
	dir, err := os.MkdirTemp("", "fit") // the path of a socket must be short
	require.NoError(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	machine, err := prochost.Listen(sys, "unix", filepath.Join(dir, "socket"), prochost.Options{Patience: time.Minute})
	require.NoError(t, err)
	defer machine.Close()
	const hosts = 4
	commands := make([]*exec.Cmd, hosts)
	logs := make([]bytes.Buffer, hosts)
	var others sync.WaitGroup
	for i := range hosts {
		h := machine.Host("watched", i, hosts)
		h.Plugin = plugintest.Path(t, "cpu")
		env, err := h.Environ()
		require.NoError(t, err)
		c := exec.Command(os.Args[0], "-test.run=^TestWatchedHost$")
		c.Env, c.Stderr = append(os.Environ(), env, "FIT_TEST_PLACE="+dir), &logs[i]
		require.NoError(t, c.Start())
		commands[i] = c
		if i != 2 {
			others.Go(func() { _ = c.Wait() })
		}
	}
	others.Wait()
	assert.NoError(t, commands[2].Process.Kill()) // it is stopped
	_ = commands[2].Wait()
	for i, c := range commands {
		if i == 2 {
			continue
		}
		assert.Equal(t, watchdog.ExitCode, c.ProcessState.ExitCode(), "host %d: %s", i, &logs[i])
		assert.Regexp(t, `host 2 \(.*\): its process \d+ is stopped: no sign of life`, logs[i].String(), "host %d", i)
	}
}
