package xspace_test

import (
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/report/xspace"
)

var begin = time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)

func at(ms int) time.Time { return begin.Add(time.Duration(ms) * time.Millisecond) }

// recorded returns a recording like that of a plugin: a plane with a line that begins 5 ms after
// begin.
func recorded() []byte {
	bytes := func(b []byte, field protowire.Number, m []byte) []byte {
		return protowire.AppendBytes(protowire.AppendTag(b, field, protowire.BytesType), m)
	}
	number := func(b []byte, field protowire.Number, v uint64) []byte {
		return protowire.AppendVarint(protowire.AppendTag(b, field, protowire.VarintType), v)
	}
	event := number(number(number(nil, 1, 7), 2, 1_000_000_000), 3, 2_000_000_000)
	line := bytes(number(bytes(nil, 2, []byte("XLA Ops")), 3, uint64(at(5).UnixNano())), 4, event)
	plane := bytes(bytes(nil, 2, []byte("/device:TPU:0")), 3, line)
	plane = bytes(plane, 4, bytes(number(nil, 1, 7), 2, bytes(number(nil, 1, 7), 2, []byte("fusion.1"))))
	return append(bytes(nil, 1, plane), 0) // like libtpu
}

func sample() xspace.Profile {
	return xspace.Profile{Begin: begin, End: at(100), Host: "host-0", Devices: recorded(), Lines: []xspace.Line{
		{Name: "steps", Events: []xspace.Event{{Name: "train", Step: 3, Begin: at(1), Took: 9 * time.Millisecond},
			{Name: "train", Step: 4, Begin: at(10), Took: 8 * time.Millisecond}}},
		{Name: "run", Events: []xspace.Event{{Name: "input", Begin: at(-2), Took: time.Millisecond},
			{Name: "launch", Begin: at(2), Took: 250 * time.Microsecond}}},
	}}
}

func TestWhatIsNoXSpaceIsAnError(t *testing.T) {
	p := sample()
	for _, bad := range [][]byte{{0x0a}, {0x0a, 5, 1}, {0xff}, {0x0a, 2, 0x1a, 9}, {0x0a, 4, 0x1a, 2, 0x18, 0x80}} {
		p.Devices = bad
		_, err := p.Encode()
		assert.Equal(t, errkind.ValueError, errkind.KindOf(err), "%x: %v", bad, err)
	}
}

func FuzzWhatAPluginRecorded(f *testing.F) {
	f.Add(recorded())
	f.Fuzz(func(t *testing.T, devices []byte) {
		p := sample()
		p.Devices = devices
		once, err := p.Encode()
		if err != nil {
			return
		}
		// The planes of the host follow the unchanged planes of the plugin.
		p.Devices = nil
		host, err := p.Encode()
		require.NoError(t, err)
		require.Equal(t, host, once[len(once)-len(host):])
	})
}

// TestTheOfficialPackageShowsOurs needs Python with xprof, which make test-python installs.
func TestTheOfficialPackageShowsOurs(t *testing.T) {
	if os.Getenv("TPUSTRATEGY_PYTHON_TESTS") != "1" {
		t.Skip("TPUSTRATEGY_PYTHON_TESTS=1 runs this test")
	}
	data, err := sample().Encode()
	require.NoError(t, err)
	path := filepath.Join(t.TempDir(), filepath.FromSlash(xspace.Path("steps_3-4", "host-0")))
	require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
	require.NoError(t, os.WriteFile(path, data, 0o644))
	out, err := exec.Command("python3", "-c", `
import sys
from xprof.convert import _pywrap_profiler_plugin as p
data, ok = p.xspace_to_tools_data([sys.argv[1]], "trace_viewer@", {"resolution": 8000})
assert ok
sys.stdout.buffer.write(data if isinstance(data, bytes) else data.encode())
`, path).Output()
	var failed *exec.ExitError
	if errors.As(err, &failed) {
		t.Fatalf("%s", failed.Stderr)
	}
	require.NoError(t, err)
	type event struct {
		Name    string
		Ts, Dur float64 // microseconds
		Ph      string
	}
	var page struct{ TraceEvents []event }
	require.NoError(t, json.Unmarshal(out, &page), "%s", out)
	page.TraceEvents = slices.DeleteFunc(page.TraceEvents, func(e event) bool { return e.Ph != "X" })
	// steps, as XProf knows them
	assert.ElementsMatch(t, []event{{"train 3", 1000, 9000, "X"}, {"train 4", 10000, 8000, "X"},
		{"input", 0, 1000, "X"}, {"launch", 2000, 250, "X"}, {"fusion.1", 6000, 2000, "X"}}, page.TraceEvents)
}
