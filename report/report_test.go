package report

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"image/png"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "write the golden texts anew")

// sample is a report with a bit of everything.
func sample() *Report {
	return &Report{
		Version: FormatVersion, Step: "train_step",
		Target:   Target{Name: "v5e:2x2", Kind: "TPU v5 lite", Platform: "TFRT", Devices: 4, Chips: 4, Hosts: 1, HBMBytes: 16 << 30, PeakFLOPS: 197e12, HBMBandwidth: 819e9},
		Replicas: 2, LogicalDevices: 2, Mesh: "Mesh(replica=2, logical=2)",
		Memory: Memory{Arguments: 4 << 30, Outputs: 3 << 30, Aliased: 2 << 30, Temporaries: 6 << 30, Code: 1 << 20, Total: 11<<30 + 1<<20, Needs: 11<<30 + 1<<20,
			Peak: 10 << 30, Limit: 16 << 30, Verdict: Fits},
		Tensors: []Tensor{
			{Role: "variable", Name: "/up/weights", DType: "Float32", Shape: []int{1024, 2048}, Shard: []int{1024, 1024}, Annotation: "split(1, 2)",
				Spec: "P(nil, logical)", BytesPerCore: 4 << 20, TotalBytes: 8 << 20, Copies: 1, Donated: true, Starts: [][]int{{0, 0}, {0, 1024}}},
			{Role: "variable", Name: "/bias<script>", DType: "Float32", Shape: []int{2048}, Shard: []int{2048}, Annotation: "none", BytesPerCore: 8 << 10, TotalBytes: 8 << 10, Copies: 2},
			{Role: "argument", Name: "argument_0", DType: "Float32", Shape: []int{64, 1024}, Shard: []int{64, 1024}, PerReplica: true, Annotation: "none", BytesPerCore: 256 << 10, TotalBytes: 256 << 10, Copies: 2},
			{Role: "result", Name: "result_0", DType: "Float32", Shape: []int{}, Shard: []int{}, Annotation: "none", BytesPerCore: 4, TotalBytes: 4, Copies: 2},
		},
		Collectives: []Collective{
			{Kind: "all-reduce", Axis: "replica", GroupSize: 2, Count: 3, Bytes: 4 << 20, Moved: 4 << 20},
			{Kind: "all-gather", Axis: "logical", GroupSize: 2, Count: 1, Bytes: 1 << 20, Moved: 1 << 20, InLoop: true},
		},
		Cost:  Cost{FLOPs: 2e12, BytesAccessed: 3e9, RooflineSeconds: 0.02, Untimed: 36, FloorSeconds: 0.0125, ModelFLOPs: 7e12, Utilization: 0.44},
		Notes: []string{"a note"}, LoweringSeconds: 0.002, CompilingSeconds: 1.5,
	}
}

func TestTheTextSaysEverything(t *testing.T) {
	var b bytes.Buffer
	require.NoError(t, sample().WriteText(&b))
	golden := filepath.Join("testdata", "sample.txt")
	if *update {
		require.NoError(t, os.MkdirAll("testdata", 0o755))
		require.NoError(t, os.WriteFile(golden, b.Bytes(), 0o644))
	}
	want, err := os.ReadFile(golden)
	require.NoError(t, err)
	assert.Equal(t, string(want), b.String())
}

func TestTheTextOfABareReport(t *testing.T) {
	var b bytes.Buffer
	r := &Report{Version: FormatVersion, Step: "s", Replicas: 1, LogicalDevices: 1, Memory: Memory{Verdict: Unknown}, Cost: Cost{FLOPs: -1, BytesAccessed: -1}}
	require.NoError(t, r.WriteText(&b))
	assert.Contains(t, b.String(), "verdict: unknown")
	assert.Contains(t, b.String(), "collectives of one core in one step\n  none")
	full := sample()
	full.Memory.Arguments = 40 << 30
	b.Reset()
	require.NoError(t, full.WriteText(&b))
	assert.Contains(t, b.String(), "["+strings.Repeat("a", barWidth)+"]", "the bar ends at its end")
}

func TestJSONHoldsEverythingThatIsShown(t *testing.T) {
	data, err := json.Marshal(sample())
	require.NoError(t, err)
	again, err := Parse(data)
	require.NoError(t, err)
	assert.Equal(t, sample(), again)
}

func TestParseRefusesWhatIsNoReport(t *testing.T) {
	good, err := json.Marshal(sample())
	require.NoError(t, err)
	for name, text := range map[string]string{
		"nothing": "", "text": "hello", "another object": "{}", "a list": "[]", "a string": `"x"`,
		"another version": strings.Replace(string(good), `"version":2`, `"version":7`, 1),
		"two of them":     string(good) + string(good),
		"cut":             string(good[:len(good)/2]),
		"a wrong type":    strings.Replace(string(good), `"replicas":2`, `"replicas":"2"`, 1),
		"no replicas":     strings.Replace(string(good), `"replicas":2`, `"replicas":0`, 1),
		"uneven shapes":   strings.Replace(string(good), `"shard":[1024,1024]`, `"shard":[1024]`, 1),
		"negative shapes": strings.Replace(string(good), `"shard":[1024,1024]`, `"shard":[-1,1024]`, 1),
		"wide shards":     strings.Replace(string(good), `"shard":[1024,1024]`, `"shard":[9999,1024]`, 1),
		"uneven starts":   strings.Replace(string(good), `"starts":[[0,0]`, `"starts":[[0]`, 1),
	} {
		_, err := Parse([]byte(text))
		require.ErrorIs(t, err, ErrFormat, name)
	}
}

func TestAReportOfTheFirstVersionSaysSo(t *testing.T) {
	r, err := Parse([]byte(`{"version":1,"replicas":1,"logical_devices":1,"cost":{"flops_per_core":1,"seconds":-35.98}}`))
	require.NoError(t, err)
	assert.Equal(t, FormatVersion, r.Version)
	assert.Contains(t, r.Notes[0], "counted what is in loops once")
	var b bytes.Buffer
	require.NoError(t, r.WriteText(&b))
	assert.NotContains(t, b.String(), "-35", "no negative time is shown")
}

func FuzzParse(f *testing.F) {
	good, err := json.Marshal(sample())
	require.NoError(f, err)
	f.Add(good)
	f.Add([]byte(`{"version":1,"replicas":1,"logical_devices":1,"tensors":[{"shape":[0,3],"shard":[0,3],"starts":[[0,0]]}]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		r, err := Parse(data)
		if err != nil {
			return
		}
		var b bytes.Buffer
		require.NoError(t, r.WriteText(&b))
		require.NoError(t, r.WriteHTML(&b))
	})
}

func TestTheTextMovesNoCursor(t *testing.T) {
	r := sample()
	r.Step, r.Notes = "step\x1b[2J", append(r.Notes, "a\rb\u009bc")
	var b bytes.Buffer
	require.NoError(t, r.WriteText(&b))
	assert.Contains(t, b.String(), "step\ufffd[2J on v5e:2x2")
	assert.Contains(t, b.String(), "note: a\ufffdb\ufffdc\n")
}

func TestThePageStandsAlone(t *testing.T) {
	var b bytes.Buffer
	require.NoError(t, sample().WriteHTML(&b))
	text := b.String()
	for _, want := range []string{"train_step", "v5e:2x2", "all-gather", "replica", "/up/weights", "11.00 GiB", "fits", "44.00%", "roofline", "without 36 operations", "2.79 GiB"} {
		assert.Contains(t, text, want)
	}
	assert.NotContains(t, text, "<script")
	assert.NotContains(t, text, "http")
	assert.Contains(t, text, "/bias&lt;script&gt;")
	assert.NotContains(t, text, "ZgotmplZ")
}

// screenshot shows a page in a browser. Without one that works the test is skipped,
// or fails where TPUSTRATEGY_REQUIRE_BROWSER is set.
func screenshot(t *testing.T, page []byte) (path string) {
	t.Helper()
	reason := "no chromium is installed"
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		browser, err := exec.LookPath(name)
		if err != nil {
			continue
		}
		for range 2 { // a first start on a busy machine may be too slow
			dir, err := os.MkdirTemp("", "report")
			require.NoError(t, err)
			t.Cleanup(func() { _ = os.RemoveAll(dir) }) // the browser may still write there
			pagePath, shot := filepath.Join(dir, "report.html"), filepath.Join(dir, "report.png")
			require.NoError(t, os.WriteFile(pagePath, page, 0o644))
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			cmd := exec.CommandContext(ctx, browser, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars",
				"--user-data-dir="+filepath.Join(dir, "profile"), "--window-size=1000,1200", "--screenshot="+shot, "file://"+pagePath)
			cmd.WaitDelay = time.Second // its children hold the pipe
			out, err := cmd.CombinedOutput()
			cancel()
			if _, missing := os.Stat(shot); missing == nil {
				return shot
			}
			reason = fmt.Sprintf("%s took no picture: %v\n%s", browser, err, out)
		}
		break
	}
	if os.Getenv("TPUSTRATEGY_REQUIRE_BROWSER") != "" {
		t.Fatal(reason)
	}
	t.Skip(reason)
	return ""
}

// TestAPageLooksRight shows the page in a browser and looks at the picture: the
// memory bar, with its parts side by side, and the two halves of a split tensor.
func TestAPageLooksRight(t *testing.T) {
	var b bytes.Buffer
	require.NoError(t, sample().WriteHTML(&b))
	shot := screenshot(t, b.Bytes())
	f, err := os.Open(shot)
	require.NoError(t, err)
	defer f.Close()
	picture, err := png.Decode(f)
	require.NoError(t, err)
	type color [3]uint8
	first, count := map[color]int{}, map[color]int{}
	bounds := picture.Bounds()
	for y := bounds.Min.Y; y < bounds.Max.Y; y++ {
		for x := bounds.Min.X; x < bounds.Max.X; x++ {
			r, g, b, _ := picture.At(x, y).RGBA()
			c := color{uint8(r >> 8), uint8(g >> 8), uint8(b >> 8)}
			if count[c] == 0 {
				first[c] = x
			}
			count[c]++
		}
	}
	arguments, outputs, temporaries, free := color{0x44, 0x77, 0xaa}, color{0x66, 0xcc, 0xee}, color{0xee, 0x66, 0x77}, color{0xee, 0xee, 0xee}
	for name, c := range map[string]color{"arguments": arguments, "outputs": outputs, "temporaries": temporaries, "free": free} {
		require.Greater(t, count[c], 1000, name)
	}
	assert.Less(t, first[arguments], first[outputs])
	assert.Less(t, first[outputs], first[temporaries])
	// 4, 1 and 6 of 16 GiB.
	assert.InDelta(t, 4, float64(count[arguments])/float64(count[outputs]), 0.5)
	assert.InDelta(t, 6, float64(count[temporaries])/float64(count[outputs]), 0.7)
	halves := 0
	for c, n := range count {
		// Pale, saturated colours: those of the tiles.
		high, low := max(c[0], c[1], c[2]), min(c[0], c[1], c[2])
		if n > 3000 && high > 220 && low > 120 && low < 180 {
			halves++
		}
	}
	assert.Equal(t, 2, halves, "the two halves of the split tensor")
}

func TestUnits(t *testing.T) {
	assert.Equal(t, "1.50 MiB", Bytes(3<<19))
	assert.Equal(t, "2.00 TiB", Bytes(2<<40))
	assert.Equal(t, "12 B", Bytes(12))
	assert.Equal(t, "197.00 TFLOP/s", SI(197e12, "FLOP/s"))
	assert.Equal(t, "3 FLOP", SI(3, "FLOP"))
	assert.Equal(t, "1.25 ms", Seconds(0.00125))
	assert.Equal(t, "3.0 us", Seconds(3e-6))
	assert.Equal(t, "2.00 s", Seconds(2))
}
