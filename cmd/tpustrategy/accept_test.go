package main

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/internal/accept"
	"github.com/tpustrategy/tpustrategy/internal/test/plugintest"
)

// stopper stops the children of this process once something is written.
type stopper struct{ stopped []int }

func (s *stopper) Write(p []byte) (int, error) {
	if s.stopped == nil {
		lists, _ := filepath.Glob("/proc/self/task/*/children") // the pattern is one
		for _, list := range lists {
			text, _ := os.ReadFile(list) // a thread may have ended
			for _, field := range strings.Fields(string(text)) {
				pid, _ := strconv.Atoi(field)
				s.stopped = append(s.stopped, pid)
				_ = syscall.Kill(pid, syscall.SIGSTOP)
			}
		}
	}
	return len(p), nil
}

func TestAFrozenChildOfAcceptIsEndedAndItsPartNamed(t *testing.T) {
	executable, err := os.Executable()
	require.NoError(t, err)
	var out stopper
	a := &app{stdout: &out, stderr: os.Stderr, stdin: strings.NewReader(""), environ: os.Environ(), getenv: os.Getenv,
		executable: executable, argv0: "tpustrategy"}
	c := &acceptCmd{CPU: 2, Hosts: 1, Kill: -1, Quick: true, Only: []string{"environment", "training"},
		Plugin: plugintest.Path(t, "cpu")}
	require.NoError(t, c.check())
	report := a.runAccept(t.Context(), &cli{}, c, time.Hour, 6*time.Second)
	require.Len(t, out.stopped, 1, "it has passed the start")
	assert.Equal(t, accept.Rejected, report.Verdict)
	last := report.Outcomes[len(report.Outcomes)-1]
	assert.Regexp(t, "^(environment|training|after (start|environment))$", last.Part, "what it was at, or had just ended")
	require.Len(t, last.Failures, 1)
	assert.Contains(t, last.Failures[0], "accept: the process: no sign of life in 6s")
	assert.ErrorIs(t, syscall.Kill(out.stopped[0], 0), syscall.ESRCH, "it is gone")
}
