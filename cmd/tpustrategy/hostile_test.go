package main

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/fit/watchdog"
	"github.com/tpustrategy/tpustrategy/internal/test/hangtest"
)

func TestWhatIsNoFileIsNotReadByACommand(t *testing.T) {
	dir := t.TempDir()
	pipe := filepath.Join(dir, "pipe")
	require.NoError(t, syscall.Mkfifo(pipe, 0o600))
	for _, path := range []string{pipe, "/dev/zero"} {
		for _, args := range [][]string{{"curve", path, "-o", filepath.Join(dir, "x.html")}, {"report", path}} {
			hangtest.Within(t, func() {
				code, _, stderr := commandLine(t, nil, args...)
				assert.NotZero(t, code, args)
				assert.Contains(t, stderr, "it is not a regular file", args)
			})
		}
	}
	hangtest.Within(t, func() {
		_, stdout, _ := commandLine(t, []string{"TPUSTRATEGY_CPU_PLUGIN=" + pipe, "TPUSTRATEGY_TPU_PLUGIN=" + pipe}, "doctor")
		assert.Contains(t, stdout, pipe)
	})
}

// Untrusted text in a record, a file name or the environment is shown with control characters escaped.
func TestEscapeCodesDoNotReachTheTerminal(t *testing.T) {
	const evil = "x\x1b]0;owned\a\x1b[2J\u009b1m\u202e\xff\r"
	dir := filepath.Join(t.TempDir(), evil)
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "status"), 0o755))
	board, err := watchdog.OpenRecordStore(t.Context(), dir)
	require.NoError(t, err)
	r := watchdog.Record{Version: watchdog.Version, Run: evil, Hosts: 2, Name: evil, Sequence: 1, Time: time.Now(),
		State: watchdog.Stuck, Activity: evil, ActivityName: evil,
		NonFatalError: evil, Findings: []watchdog.Finding{{Cause: evil, Text: evil, Name: evil}}}
	require.NoError(t, board.Put(t.Context(), &r))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "status", "host-0001.json"), []byte(`{"version":1,"state":"`+evil+
		`","hosts":2,"host":1}`+"\n"), 0o644))
	table := filepath.Join(dir, "t.csv")
	require.NoError(t, os.WriteFile(table, []byte("step,loss"+strings.ReplaceAll(evil, "\r", "")+"\n1,2\n"), 0o644))
	bad := filepath.Join(dir, "bad.csv")
	require.NoError(t, os.WriteFile(bad, []byte("step,loss\n"+evil+",2\n"), 0o644))
	for _, args := range [][]string{{"watch", dir, "--once"}, {"watch", dir, "--once", "--json"}, {"watch", dir + "none"},
		{"curve", table, "-o", filepath.Join(dir, "c.html")},
		{"curve", bad, "-o", filepath.Join(dir, "c.html")}, {"curve", table, "-o", evil},
		{"export", dir, filepath.Join(dir, "o")}, {"report", dir + "none"},
		{"topology", evil}, {"visualize", evil, "--shape", "8", "--mesh", evil}, {"doctor"}, {"doctor", "--json"}, {evil},
		{"--" + evil},
		{"launch", evil, "--on", "gce", "--dry-run"}, {"compile", evil}, {"compile", "--topology", evil, evil},
		{"plan", "--topology", evil}, {"plan", evil}, {"accept", "--cpu", "1", "--store", dir + "none/x://" + evil, "--only",
			evil}} {
		_, stdout, stderr := commandLine(t, []string{"TPU_NAME=" + evil, "TF_CONFIG=" + evil, "TPUSTRATEGY_CPU_PLUGIN=" +
			evil, "TPUSTRATEGY_TPU_PLUGIN=" + evil,
			"TPU_WORKER_HOSTNAMES=" + evil, "TPU_ACCELERATOR_TYPE=v5e-8" + evil}, args...)
		text := stdout + stderr
		assert.NotEmpty(t, text, "%q", args)
		assert.NotRegexp(t, "[\x00-\x08\x0b-\x1f\x7f\u0080-\u009f\u202e]", text, "%q", args)
		assert.True(t, utf8.ValidString(text), "%q", args)
	}
}
