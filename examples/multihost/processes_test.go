package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/fit/interrupt"
	"github.com/tpustrategy/tpustrategy/fit/trainer"
	"github.com/tpustrategy/tpustrategy/fit/watchdog"
	"github.com/tpustrategy/tpustrategy/internal/test/prochost"
)

const hostArguments = "MULTIHOST_TEST_ARGUMENTS"

// TestHostProcess is a host that another test starts.
func TestHostProcess(t *testing.T) {
	text, here := os.LookupEnv(hostArguments)
	if !here {
		t.Skip("other tests start this")
	}
	os.Exit(trainer.Main("multihost", func(ctx context.Context, _ []string, stdout, stderr io.Writer) error {
		cfg, err := parse(strings.Fields(text), stderr)
		if err != nil {
			return err
		}
		host, _, err := prochost.FromEnviron(os.Getenv)
		if err != nil {
			return err
		}
		outcome, err := runInHostProcess(ctx, cfg, host, stderr)
		if err != nil && !outcome.Interrupted {
			return err
		}
		return errors.Join(err, outcome.Write(stdout))
	}))
}

// asTest has the hosts be processes of this test.
func asTest(cfg config, arguments string) config {
	cfg.args = []string{fmt.Sprintf("%s=-plugin %s -steps %d -seed %d -logical %d -out=%s %s", hostArguments, cfg.Plugin,
		cfg.Steps, cfg.Seed, cfg.Logical, cfg.Out, arguments)}
	return cfg
}

func TestProcessesTrainToTheSameLossesAsOne(t *testing.T) {
	cfg := small(t, 4, 2)
	_, one := alone(t, cfg)
	var stdout, stderr bytes.Buffer
	result, err := runProcesses(context.Background(), asTest(cfg, ""), &stdout, &stderr)
	require.NoError(t, err, "%s", &stderr)
	assert.InDelta(t, *one.Loss, *result.Loss, 1e-4)
	assert.InDelta(t, *one.TestLoss, *result.TestLoss, 1e-4)
	assert.Contains(t, stderr.String(), "replica=4,logical=2")
	assert.Contains(t, stdout.String(), "Host 3: Held-out accuracy")
	assert.Equal(t, 1, strings.Count(stderr.String(), "of 8 cpu devices"), "one host shows the tables")
}

func TestAMissingProcessIsNamed(t *testing.T) {
	cfg := small(t, 4, 2, "-missing 2 -wait 1s")
	_, err := runProcesses(context.Background(), asTest(cfg, "-wait 20s"), &bytes.Buffer{}, &bytes.Buffer{})
	require.ErrorContains(t, err, "timed out waiting for host 2")
	require.ErrorContains(t, err, "missing: /job:worker/task:2")
}

// TestAStoppedProcessIsNamedAndEnded stops the process of a host by SIGSTOP once it trains: the
// others end by themselves, and name it, and the command ends it.
func TestAStoppedProcessIsNamedAndEnded(t *testing.T) {
	cfg := small(t, 4, 2, "-steps 1000000 -wait 4s -out", filepath.Join(t.TempDir(), "run"))
	go func() {
		board, err := watchdog.OpenRecordStore(t.Context(), cfg.Out)
		if err != nil {
			return // the test's wait fails
		}
		for ; t.Context().Err() == nil; time.Sleep(50 * time.Millisecond) {
			all, _, _ := board.ReadAll(t.Context(), 0)
			if len(all) == cfg.hosts && all[2].Checkpoint > 0 {
				_ = syscall.Kill(all[2].PID, syscall.SIGSTOP)
				return
			}
		}
	}()
	began := time.Now()
	_, err := runProcesses(t.Context(), asTest(cfg, "-wait 20s -save-every 20"), &bytes.Buffer{}, &bytes.Buffer{})
	assert.Less(t, time.Since(began), 90*time.Second)
	require.ErrorContains(t, err, "host 0: ")
	require.ErrorContains(t, err, "is stopped")
	require.ErrorIs(t, err, errHostLate)
	assert.Equal(t, watchdog.ExitCode, interrupt.ExitCodeFor(err), "which asks for a restart: %v", err)
}
