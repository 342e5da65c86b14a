package progress

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/report/phase"
)

// at returns the phase of a step at a stage.
func at(stage phase.Stage, name string, text int) phase.Phase {
	return phase.Phase{Name: name, Stage: stage, Target: "v5e:4x4", Replicas: 4, LogicalDevices: 4, TextBytes: text}
}

// noMemory removes the memory of this process from a text.
func noMemory(text string) string {
	var lines []string
	for line := range strings.Lines(text) {
		before, _, _ := strings.Cut(line, " of memory")
		if i := strings.LastIndex(before, ", "); i >= 0 && before != line {
			line = before[:i] + line[len(before)+len(" of memory"):]
		}
		lines = append(lines, line)
	}
	return strings.Join(lines, "")
}

func TestALineComesEachTenSecondsWhereThereIsNoTerminal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var w bytes.Buffer
		l := NewLine(&w, Options{Prefix: "p: "})
		l.SetPhase(at(phase.Tracing, "step", 0))
		time.Sleep(11 * time.Second)
		l.SetPhase(at(phase.Lowering, "step", 0))
		l.SetPhase(at(phase.Compiling, "step", 1234567))
		time.Sleep(20 * time.Second)
		l.SetPhase(at(phase.Tracing, "other", 0))
		time.Sleep(10 * time.Second)
		l.SetPhase(at(phase.Done, "step", 1234567))
		l.SetPhase(at(phase.Done, "other", 0))
		time.Sleep(time.Minute)
		synctest.Wait()
		assert.Equal(t, `p: tracing step for v5e:4x4 (4 x 4 devices): 10s
p: compiling step for v5e:4x4 (4 x 4 devices): 9s, 1.2 MB of program
p: compiling step for v5e:4x4 (4 x 4 devices): 19s, 1.2 MB of program
p: tracing other for v5e:4x4 (4 x 4 devices): 9s, and 1 more
`, noMemory(w.String()))

		w.Reset()
		l.SetPhase(at(phase.Tracing, "quick", 0))
		time.Sleep(9 * time.Second)
		l.Close()
		l.Close()
		l.SetPhase(at(phase.Done, "quick", 0))
		time.Sleep(time.Minute)
		assert.Empty(t, w.String())
	})
}

func TestATerminalsLineIsWrittenOverAndWiped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var w bytes.Buffer
		l := NewLine(&w, Options{})
		l.width = func() int { return 40 }
		l.SetProcess(1 << 30) // a process that does not exist has no memory to show
		l.SetPhase(at(phase.Compiling, "a", 500))
		time.Sleep(550 * time.Millisecond)
		synctest.Wait()
		line := "\r\x1b[Kcompiling a for v5e:4x4 (4 x 4 devices)"
		assert.Equal(t, strings.Repeat(line, 2), strings.ReplaceAll(w.String(), "1s", "0s"), "the rest is cut off")
		l.SetPhase(phase.Phase{Name: "a", Stage: phase.Done, Target: "v5e:4x4", Err: errors.New("no")})
		assert.True(t, strings.HasSuffix(w.String(), "\r\x1b[K"))
		size := w.Len()
		l.SetPhase(at(phase.Tracing, "short", 0))
		time.Sleep(drawDelay - time.Millisecond)
		l.SetPhase(at(phase.Done, "short", 0))
		time.Sleep(time.Minute)
		assert.Equal(t, size, w.Len(), "what is quick shows nothing")
	})
}

func TestTheMemoryIsTheCompilersProcesss(t *testing.T) {
	if _, err := os.Stat("/proc/self/statm"); err != nil {
		t.Skip(err)
	}
	assert.Greater(t, processMemory(0), int64(1<<20))
	assert.Equal(t, processMemory(os.Getpid())>>24, processMemory(0)>>24)
	assert.Zero(t, processMemory(1<<30))
	assert.Zero(t, processCPUTime(1<<30))
	assert.Zero(t, processCPUTime(-1))
	for begin := processCPUTime(0); processCPUTime(0) < begin+20*time.Millisecond; {
		processMemory(0)
	}
	m := compileJob{Phase: at(phase.Compiling, "s", 900), estimate: estimate{expected: 40 * time.Second,
		longest: time.Minute}}
	assert.Equal(t, "compiling s for v5e:4x4 (4 x 4 devices): 23s of about 40s, 0.9 kB of program, 2.00 GiB of memory",
		m.text(23*time.Second, 2<<30))
}

// TestALineSaysWhenNothingIsKnownAnyMore checks a compilation that takes longer than similar ones,
// and a compilation without similar ones.
func TestALineSaysWhenNothingIsKnownAnyMore(t *testing.T) {
	path := t.TempDir() + "/record.jsonl"
	appendRecord(path, at(phase.Compiling, "other", 700000), 300*time.Second)
	appendRecord(path, at(phase.Compiling, "elm", 708000), 200*time.Second)
	const advice = " Ctrl-C is safe: it loses only this compilation and the unsaved steps of a run. " +
		"Layers of one shape in a loop (loop.Layers) make a program, and its compilation, much shorter.\n"
	lines := func(record string, text int, d time.Duration, width int) string {
		var w bytes.Buffer
		synctest.Test(t, func(t *testing.T) {
			l := NewLine(&w, Options{Record: record, Every: 100 * time.Second, Prefix: "p: "})
			if width > 0 {
				l.width = func() int { return width }
			}
			l.SetProcess(-1)
			l.SetPhase(at(phase.Compiling, "elm", text))
			time.Sleep(d)
			synctest.Wait()
			l.Close()
		})
		return w.String()
	}
	const head = "p: compiling elm for v5e:4x4 (4 x 4 devices): "
	assert.Equal(t, head+"1m40s of about 3m20s, 708.0 kB of program\n"+
		head+"3m20s of about 3m20s, 708.0 kB of program\n"+
		head+"5m0s of up to 5m0s, 708.0 kB of program\n"+
		"p: elm is still compiling, and the remaining time is not known: it takes longer than any of its size before, up "+
		"to 5m0s."+advice+
		head+"6m40s, its end is not known, 708.0 kB of program\n"+
		head+"8m20s, its end is not known, 708.0 kB of program\n", lines(path, 708000, 501*time.Second, 0))
	assert.Equal(t,
		"p: elm is still compiling, and the remaining time is not known: no compilation of this size is on record."+advice+
			head+"1m40s, its end is not known, 70.0 kB of program\n", lines(path, 70000, 101*time.Second, 0))

	// A compiler that gets little processor time is reported.
	shares := map[string]float64{"": 1.5, ". It has 7% of one processor: the machine is busy, or limits it": 0.07}
	for said, share := range shares {
		var w bytes.Buffer
		synctest.Test(t, func(t *testing.T) {
			start := time.Now()
			l := NewLine(&w, Options{})
			l.cpuTime = func(pid int) time.Duration {
				assert.Equal(t, 7, pid)
				return time.Hour + time.Duration(share*float64(time.Since(start)))
			}
			l.SetProcess(7)
			l.SetPhase(at(phase.Compiling, "elm", 70000))
			time.Sleep(71 * time.Second)
			synctest.Wait()
			l.Close()
		})
		assert.Contains(t, w.String(), "no compilation of this size is on record"+said+". Ctrl-C is safe")
	}

	// On a terminal the message stays above the line and is not truncated.
	drawn := lines("", 70000, 61*time.Second, 60)
	assert.Equal(t, 1, strings.Count(drawn, "\n"))
	assert.Contains(t, drawn,
		"\r\x1b[Kp: elm is still compiling, and the remaining time is not known: no compilation of this size is on record."+
			advice+"\r\x1b[K"+head)
	assert.True(t, strings.HasSuffix(drawn, "\r\x1b[K"))
}

// TestAnEstimateThatIsPassedIsNotShown checks each second of compilations with good, poor and no
// estimates.
func TestAnEstimateThatIsPassedIsNotShown(t *testing.T) {
	of := regexp.MustCompile(`of (?:about|up to) (\S+?),`)
	for _, k := range []estimate{{}, {30 * time.Second, 30 * time.Second}, {30 * time.Second, 50 * time.Second},
		{70 * time.Second, 90 * time.Second}} {
		m := compileJob{Phase: at(phase.Compiling, "s", 900), estimate: k}
		for passed := time.Duration(0); passed < 3*time.Minute; passed += time.Second {
			text := m.text(passed, 0)
			if estimate := of.FindStringSubmatch(text); estimate != nil {
				d, err := time.ParseDuration(estimate[1])
				require.NoError(t, err)
				assert.GreaterOrEqual(t, d, passed, text)
				continue
			}
			assert.Equal(t, passed > max(k.longest, time.Minute) || k.longest > 0, strings.Contains(text,
				"its end is not known"), text)
		}
	}
}

func TestCompilationsOfLikeSizeAreExpectedToTakeAsLong(t *testing.T) {
	path := t.TempDir() + "/new/record.jsonl"
	synctest.Test(t, func(t *testing.T) {
		l := NewLine(&bytes.Buffer{}, Options{Record: path})
		took := func(name, target string, text int, d time.Duration) {
			p := at(phase.Compiling, name, text)
			p.Target = target
			l.SetPhase(p)
			time.Sleep(d)
			p.Stage = phase.Done
			l.SetPhase(p)
		}
		took("gpt", "v5e:4x4", 1000, 40*time.Second)
		took("gpt", "v5p:2x2x2", 1000, 7*time.Second)
		took("gpt", "v5e:4x4", 1000, 999*time.Millisecond) // too short to be recorded
		took("gpt", "v5e:2x4", 1300, 50*time.Second)
	})
	expect := func(want time.Duration, name, target string, text int) {
		t.Helper()
		p := at(phase.Compiling, name, text)
		p.Target = target
		assert.Equal(t, want, estimateDuration(path, p).expected)
	}
	expect(40*time.Second, "gpt", "v5e:4x4", 1010)
	expect(50*time.Second, "gpt", "v5e:2x4", 1300)
	expect(50*time.Second, "other", "2x v5e:4x4", 1400)
	expect(7*time.Second, "gpt", "v5p:4x4x4", 1100)
	expect(0, "gpt", "v5e:4x4", 2000)
	expect(0, "gpt", "v6e:4x4", 1000)
	expect(0, "gpt", "cpu", 1000)

	// Invalid lines, for example of a killed process, are skipped.
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	require.NoError(t,
		os.WriteFile(path,
			append([]byte("{\"name\":\n\x00\n{\"target\": \"v5e:4x4\", \"text_bytes\": 1000, \"seconds\": -1}\n"), data...),
			0o600))
	expect(40*time.Second, "gpt", "v5e:4x4", 1000)

	// A long record keeps its newer part.
	var b strings.Builder
	for i := range 3000 {
		fmt.Fprintf(&b, `{"name":"n","target":"v6e:1","text_bytes":%d,"seconds":1}`+"\n", i+1)
	}
	require.NoError(t, os.WriteFile(path, []byte(b.String()), 0o600))
	appendRecord(path, at(phase.Compiling, "gpt", 1000), 3*time.Second)
	info, err := os.Stat(path)
	require.NoError(t, err)
	assert.Less(t, info.Size(), int64(maxRecord))
	assert.Len(t, readRecord(path)[0].Name, 1)
	expect(3*time.Second, "gpt", "v5e:4x4", 1000)

	// Without a place for the record nothing is recorded, and nothing fails.
	appendRecord("/dev/null/x", at(phase.Compiling, "gpt", 1000), 3*time.Second)
	appendRecord("/dev/full", at(phase.Compiling, "gpt", 1000), 3*time.Second)
	assert.Zero(t, estimateDuration("/dev/zero", at(phase.Compiling, "gpt", 1000)))
	assert.Zero(t, estimateDuration("", at(phase.Compiling, "gpt", 1000)))
	assert.True(t, strings.HasSuffix(DefaultRecordFile(), "compilations.jsonl") || DefaultRecordFile() == "")
}

func TestANameDoesNotMoveTheCursor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var w bytes.Buffer
		l := NewLine(&w, Options{Prefix: "p: "})
		l.SetPhase(at(phase.Tracing, "a\x1b[2J\nb\xff", 0))
		time.Sleep(11 * time.Second)
		l.Close()
		synctest.Wait()
		assert.Equal(t, "p: tracing a\\u001b[2J b\\xff for v5e:4x4 (4 x 4 devices): 10s\n", noMemory(w.String()))
	})
}

// TestATerminalsLineHasOneOwner checks that the work of StartTask counts seconds and stays as a line,
// that a compilation replaces the state of the run and returns to it, and that other text is
// printed above.
func TestATerminalsLineHasOneOwner(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var w bytes.Buffer
		l := NewLine(&w, Options{Prefix: "p: "})
		l.width = func() int { return 50 }
		l.SetProcess(-1)
		written := func() string {
			l.mu.Lock() // prevents further drawing
			defer l.mu.Unlock()
			return w.String()
		}
		shown := func() string { // contents of the terminal: the lines, the last one as it is drawn now
			synctest.Wait()
			var lines []string
			for line := range strings.SplitSeq(written(), "\n") {
				lines = append(lines, regexp.MustCompile(`^.*\x1b\[K`).ReplaceAllString(line, ""))
			}
			return strings.Join(lines, "|")
		}
		l.StartTask("reading")
		assert.Equal(t, "p: reading", written()[len("\r\x1b[K"):])
		time.Sleep(3100 * time.Millisecond)
		assert.Equal(t, "p: reading: 3s", shown())
		l.StartTask("writing")
		begun := time.Now()
		l.SetStatus(func(width int) string {
			return fmt.Sprintf("%d columns, %s", width, time.Since(begun).Round(time.Second))
		})
		time.Sleep(2100 * time.Millisecond)
		assert.Equal(t, "p: reading: 3s|p: writing|49 columns, 2s", shown())
		fmt.Fprintln(l, "a warning")
		time.Sleep(time.Second)
		assert.Equal(t, "p: reading: 3s|p: writing|a warning|49 columns, 3s", shown())
		l.SetPhase(at(phase.Compiling, "s", 900))
		time.Sleep(time.Second)
		assert.Equal(t, "p: reading: 3s|p: writing|a warning|p: compiling s for v5e:4x4 (4 x 4 devices): 1s, 0", shown(),
			"cut off")
		l.SetPhase(at(phase.Done, "s", 900))
		time.Sleep(time.Second)
		assert.Equal(t, "p: reading: 3s|p: writing|a warning|49 columns, 5s", shown())
		l.SetStatus(nil)
		size := len(written())
		time.Sleep(time.Minute)
		assert.Equal(t, "p: reading: 3s|p: writing|a warning|49 columns, 5s|", shown())
		assert.Equal(t, size, len(written()), "nothing draws on")
		l.StartTask("on")
		l.Close()
		assert.True(t, strings.HasSuffix(shown(), "|p: on|"))
		synctest.Wait()
	})
	var w bytes.Buffer
	l := NewLine(&w, Options{Prefix: "p: "})
	l.StartTask("reading\x1b[2J")
	l.SetStatus(func(int) string { panic("no terminal") })
	fmt.Fprintln(l, "step 1")
	l.SetStatus(nil)
	l.Close()
	assert.Equal(t, "p: reading\\u001b[2J\nstep 1\n", w.String())
	assert.False(t, l.IsTerminal())
}

func TestWhatChangesOftenIsSaidNowAndThen(t *testing.T) {
	var log strings.Builder
	line := NewLine(&log, Options{Prefix: "p: ", Every: time.Hour})
	for _, text := range []string{"probing 1 of 9", "probing 2 of 9", "compiling 1 of 3", "compiling 2 of 3",
		"probing 3 of 9"} {
		line.Update(text)
	}
	line.Close()
	assert.Equal(t, "p: probing 1 of 9\np: compiling 1 of 3\np: probing 3 of 9\n", log.String())
}
