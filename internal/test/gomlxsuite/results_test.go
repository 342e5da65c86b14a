package gomlxsuite

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// events returns lines in the format of test2json.
func events(t *testing.T, list ...event) *strings.Reader {
	t.Helper()
	var b strings.Builder
	for _, e := range list {
		line, err := json.Marshal(e)
		require.NoError(t, err)
		b.Write(append(line, '\n'))
	}
	return strings.NewReader(b.String())
}

func TestEventsBecomeOutcomes(t *testing.T) {
	r, err := read(events(t,
		event{Action: "start"},
		event{Action: "run", Test: "TestA"},
		event{Action: "run", Test: "TestA/xla:/lib/x.so"},
		event{Action: "output", Test: "TestA/xla:/lib/x.so", Output: "wrong\n"},
		event{Action: "fail", Test: "TestA/xla:/lib/x.so"},
		event{Action: "fail", Test: "TestA"},
		event{Action: "run", Test: "TestB"},
		event{Action: "output", Test: "TestB", Output: "fine\n"},
		event{Action: "pass", Test: "TestB"},
		event{Action: "run", Test: "TestC"},
		event{Action: "skip", Test: "TestC"},
		event{Action: "run", Test: "TestD"},
		event{Action: "output", Output: "SIGSEGV\n"},
		event{Action: "fail", Elapsed: 1.5},
	), Backend{"xla", "xla:/lib/x.so"}, "said\n")
	require.NoError(t, err)
	assert.Equal(t, []string{"TestA", "TestA/BACKEND", "TestB", "TestC", "TestD"}, r.Names())
	assert.Equal(t, Test{Fail, "wrong\n"}, r.Tests["TestA/BACKEND"])
	assert.Equal(t, Test{Outcome: Pass}, r.Tests["TestB"], "what a test says that passes is left out")
	assert.Equal(t, Broken, r.Of("TestD"), "the program ended in the midst of it")
	assert.Equal(t, None, r.Of("TestE"))
	assert.Equal(t, map[Outcome]int{Fail: 1, Pass: 1, Skip: 1, Broken: 1}, r.Counts(), "TestA is counted by its subtest")
	assert.Equal(t, 1500*time.Millisecond, r.Took)
	assert.Equal(t, "said\nSIGSEGV\n", r.Stderr)
	assert.False(t, r.ended)

	r, err = read(events(t, event{Action: "run", Test: "TestA"}, event{Action: "fail", Test: "TestA"},
		event{Action: "output", Output: "FAIL\n"}), Backend{}, "")
	require.NoError(t, err)
	assert.True(t, r.ended, "tests failed, and the program came to its end")

	_, err = read(strings.NewReader("panic: no JSON\n"), Backend{}, "")
	assert.Error(t, err)
}

func TestNamesAreThoseOfEveryBackend(t *testing.T) {
	for name, want := range map[string]string{
		"TestA":                     "TestA",
		"TestA/go":                  "TestA/BACKEND",
		"TestA/go/B/go":             "TestA/BACKEND/B/BACKEND",
		"TestA/goes":                "TestA/goes",
		"TestA/go#01":               "TestA/go#01",
		"TestFunction/go/with_goes": "TestFunction/BACKEND/with_goes",
	} {
		assert.Equal(t, want, neutral(name, "go"), name)
	}
	assert.Equal(t, "TestA/BACKEND/x", neutral("TestA/tpustrategy:devices=8,logical=2/x",
		"tpustrategy:devices=8,logical=2"))
}
