package main

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/fit/watchdog"
)

// ran runs a command line.
func ran(t *testing.T, code int, args ...string) (stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	a := &app{stdout: &out, stderr: &errs, stdin: strings.NewReader(""), getenv: func(string) string { return "" }}
	assert.Equal(t, code, a.run(t.Context(), args), "%v: %s", args, &errs)
	return out.String(), errs.String()
}

// hosts put records into a run's folder: alive are the numbers of those that go on doing so.
func hosts(t *testing.T, dir string, all []watchdog.Record, alive ...int) {
	board, err := watchdog.OpenRecordStore(t.Context(), dir)
	require.NoError(t, err)
	put := func(i int, sequence int64) {
		r := all[i]
		r.Version, r.Run, r.Host, r.Hosts, r.Time, r.Name, r.Sequence = watchdog.Version, "r", i, len(all), time.Now(), "w",
			sequence
		if r.State == "" {
			r.State = watchdog.Running
		}
		assert.NoError(t, board.Put(context.Background(), &r))
	}
	for i := range all {
		put(i, 1)
	}
	done := make(chan struct{})
	var writing sync.WaitGroup
	writing.Go(func() {
		for n := int64(2); ; n++ {
			select {
			case <-done:
				return
			case <-time.After(100 * time.Millisecond):
			}
			for _, i := range alive {
				put(i, n)
			}
		}
	})
	t.Cleanup(func() { close(done); writing.Wait() })
}

func TestTheHostsOfARunAreShown(t *testing.T) {
	dir := t.TempDir()
	loss := watchdog.JSONFloat(0.25)
	late := watchdog.Record{Step: 398, Activity: "input", Duration: 7, Timeout: 5, ActivityIndex: 1, Rate: 3}
	waits := watchdog.Record{Step: 398, Steps: 1000, Activity: "launch", Duration: 6.9, Timeout: 30, ActivityIndex: 2,
		Loss: &loss, LossStep: 390, Checkpoint: 300, Rate: 3}
	hosts(t, dir, []watchdog.Record{waits, late, waits}, 0, 1, 2)
	out, _ := ran(t, 0, "watch", dir, "--once")
	assert.Contains(t, out, "run r: step 398 of 1000, 3 steps/s, loss 0.25 after step 390, checkpoint 300, 3 of 3 hosts\n")
	assert.Contains(t, out, "host  step  state    does    for    steps/s  loss  saved  name\n")
	assert.Contains(t, out, "1     398   running  input   7.0 s  3        -     -      w\n")
	assert.Contains(t, out,
		"host 1 (w): in the wait for its input for 7.0 s, after step 398; 2 hosts wait, in the launch after step 398\n")

	var answer watchdog.RunStatus
	out, _ = ran(t, 0, "watch", dir, "--once", "--json")
	require.NoError(t, json.Unmarshal([]byte(out), &answer))
	require.Len(t, answer.Findings, 1)
	assert.Equal(t, watchdog.InInput, answer.Findings[0].Cause)
	assert.True(t, answer.Hosts[2].Alive)
	assert.False(t, answer.Ended)
}

func TestAPlaceWithoutAliveHostsIsSaidToBeSo(t *testing.T) {
	dir := t.TempDir()
	out, _ := ran(t, 0, "watch", dir, "--once")
	assert.Contains(t, out, "no host has a record in "+dir+" yet")

	hosts(t, dir, []watchdog.Record{{Step: 5, Activity: "launch"}, {Step: 5, Activity: "launch"}})
	folder := filepath.Join(dir, "status")
	write := func(name, text string) {
		require.NoError(t, os.WriteFile(filepath.Join(folder, name), []byte(text), 0o644))
	}
	write("host-0002.json",
		`{"version":1,"run":"an earlier one","host":2,"hosts":4,"state":"running","step":77,"time":"2001-01-01T00:00:00Z"}`+
			"\n")
	write("host-0003.json", `{"version":1,"ru`)
	out, _ = ran(t, 0, "watch", dir, "--once")
	assert.Regexp(t, `no record has changed for [0-9.]+m?s; the last one was written \d+s ago, by its host's clock: `+
		`the run is dead, stopped, or cut off`, out)
	assert.Contains(t, out, `host 2 has a record of another run, "an earlier one" after step 77: it is left out`)
	assert.Contains(t, out, "host-0003.json in "+dir+": record: 16 bytes without an end: it is half written")

	_, stderr := ran(t, exitUsage, "watch", filepath.Join(dir, "nowhere"))
	assert.Contains(t, stderr, "no such file or directory")
	_, stderr = ran(t, exitUsage, "watch", filepath.Join(folder, "host-0000.json"))
	assert.Contains(t, stderr, "is no folder")
	_, stderr = ran(t, exitUsage, "watch", dir, "--interval", "1ms")
	assert.Contains(t, stderr, "give 200ms or more")
	_, stderr = ran(t, exitUsage, "watch", "gs://bucket/run")
	assert.Contains(t, stderr, "build the command with -overlay")
}

func TestARunIsFollowedToItsEnd(t *testing.T) {
	dir := t.TempDir()
	hosts(t, dir, []watchdog.Record{{Step: 5, Activity: "launch", State: watchdog.Ended}, {Step: 4, Activity: "launch",
		State: watchdog.Ended, Error: "no more\nmilk"}})
	out, _ := ran(t, 0, "watch", dir)
	lines := strings.Split(strings.TrimSpace(out), "\n")
	require.Len(t, lines, 1)
	assert.Regexp(t, `^\d\d:\d\d:\d\d run r: step 4, 0 of 2 hosts, 2 ended$`, lines[0])
	out, _ = ran(t, 0, "watch", dir, "--json")
	assert.Equal(t, 1, strings.Count(out, "\n"), "a value is a line")

	// A terminal is redrawn, beginning at its first line.
	board, err := watchdog.OpenRecordStore(t.Context(), dir)
	require.NoError(t, err)
	var view watchdog.Monitor
	look, err := view.Status(t.Context(), board)
	require.NoError(t, err)
	assert.True(t, look.Ended)
	var drawn bytes.Buffer
	show := redrawStatus(&drawn, func() (int, int, error) { return 40, 24, nil })
	for range 2 {
		require.NoError(t, show(&look))
	}
	frames := strings.Split(drawn.String(), "\x1b[H")
	require.Len(t, frames, 3)
	assert.Equal(t, frames[1], frames[2])
	assert.Contains(t, frames[2], "failed")
	assert.Equal(t, 4, strings.Count(frames[2], "\x1b[K\n"))
	assert.True(t, strings.HasSuffix(frames[2], "\x1b[J"))

	// On a low terminal, lines between the title and the end are omitted.
	drawn.Reset()
	require.NoError(t, redrawStatus(&drawn, func() (int, int, error) {
		return 100, 4,
			nil
	})(&watchdog.RunStatus{Hosts: make([]watchdog.Host, 9), Remarks: []string{"the end"}}))
	assert.Equal(t, 3, strings.Count(drawn.String(), "\n"))
	assert.Contains(t, drawn.String(), "host  step")
	assert.Contains(t, drawn.String(), "the end")
}
