package events_test

import (
	"context"
	"encoding/json"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/input"
	"github.com/tpustrategy/tpustrategy/report/events"
)

// noon returns a clock that advances by a second per call.
func noon() func() time.Time {
	t := time.Date(2026, 1, 2, 12, 0, 0, 250000, time.UTC)
	return func() time.Time {
		t = t.Add(time.Second)
		return t
	}
}

func read(t testing.TB, path string) (all []events.Event) {
	t.Helper()
	for e, err := range events.Read(context.Background(), path) {
		require.NoError(t, err)
		all = append(all, e)
	}
	return all
}

func TestWhatIsWrittenIsRead(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "run")
	w, err := events.Create(dir, events.Options{Now: noon(), Host: "ho/st"})
	require.NoError(t, err)
	assert.Regexp(t, `^events\.out\.tfevents\.1767355201\.ho_st\.\d+\.0$`, filepath.Base(w.Path()))
	at := time.Date(2026, 5, 6, 7, 8, 9, 123456000, time.UTC)
	wrote := []events.Event{
		{Time: at, Step: 1, Values: []events.Value{events.Scalar("loss", 0.25), events.Scalar("held/loss", math.Inf(1))}},
		{Time: at, Step: 2, Values: []events.Value{events.Text("note", "# a note\nof two lines, é"),
			events.NewHistogram("weights", []float64{-1, 0, 0.5, 3, math.NaN()})}},
		{Time: at, Step: 2, Values: []events.Value{events.Hyperparameters(map[string]string{"rate": "0.5", "name": "adam",
			"tied": "true"}, 5), events.HyperparametersEnd(events.Succeeded, 6)}},
		{Time: at, Step: 3, Session: events.End},
		{Time: at, Step: 1 << 40},
	}
	for _, e := range wrote {
		require.NoError(t, w.Write(e))
	}
	require.NoError(t, w.Write(events.Event{Step: 4, Values: []events.Value{events.Scalar("loss", math.NaN())}}))
	require.NoError(t, w.Close())
	require.NoError(t, w.Close())

	got := read(t, w.Path())
	require.Len(t, got, 8)
	assert.Equal(t, events.Version, got[0].Version)
	assert.Equal(t, events.Start, got[1].Session)
	assert.Equal(t, wrote, got[2:7])
	assert.True(t, math.IsNaN(float64(got[7].Values[0].Scalar)))
	assert.Equal(t, 2026, got[7].Time.Year())
	h := got[3].Values[1].Histogram
	assert.Equal(t, []float64{-1, 3, 4, 2.5, 10.25}, []float64{h.Min, h.Max, h.Number, h.Sum, h.Squares})
	assert.Len(t, h.Limits, 30)
	assert.Equal(t, 3.0, h.Limits[29])
}

func TestHistogramsOfFewNumbers(t *testing.T) {
	assert.Empty(t, events.NewHistogram("none", nil).Histogram.Buckets)
	one := events.NewHistogram("one", []float64{2, 2}).Histogram
	assert.Equal(t, []float64{2}, one.Buckets)
	assert.Equal(t, []float64{2}, one.Limits)
	wide := events.NewHistogram("wide", []float64{-math.MaxFloat64, math.MaxFloat64}).Histogram
	assert.Equal(t, 1.0, wide.Buckets[0])
	assert.Equal(t, 1.0, wide.Buckets[29])
}

func TestARestartedRunWritesAFileThatSortsAfter(t *testing.T) {
	dir, now := t.TempDir(), time.Unix(1767355200, 0)
	clock := func() time.Time { return now }
	first, err := events.Create(dir, events.Options{Now: clock, Host: "z"})
	require.NoError(t, err)
	require.NoError(t, first.Close())
	_, err = events.Create(dir, events.Options{Now: clock, Alone: true})
	require.ErrorIs(t, err, events.ErrTaken)
	again, err := events.Create(dir, events.Options{Now: clock, Host: "a", Restart: 7})
	require.NoError(t, err)
	require.NoError(t, again.Close())
	assert.Less(t, first.Path(), again.Path())
	got := read(t, again.Path())
	assert.Equal(t, events.Start, got[1].Session)
	assert.Equal(t, int64(7), got[1].Step)
}

func TestDamagedFilesGiveWhatIsWhole(t *testing.T) {
	dir := t.TempDir()
	w, err := events.Create(dir, events.Options{})
	require.NoError(t, err)
	for step := range int64(3) {
		require.NoError(t, w.Write(events.Event{Step: step, Values: []events.Value{events.Scalar("loss", 1)}}))
	}
	require.NoError(t, w.Close())
	whole, err := os.ReadFile(w.Path())
	require.NoError(t, err)
	flipped := append([]byte(nil), whole...)
	flipped[len(flipped)-6] ^= 1
	path := filepath.Join(dir, "damaged")
	for name, data := range map[string][]byte{
		"cut":       whole[:len(whole)-3],
		"flipped":   flipped,
		"no event":  input.AppendTFRecord(append([]byte(nil), whole...), []byte{0x0a}),
		"no record": append(append([]byte(nil), whole...), "text"...),
	} {
		require.NoError(t, os.WriteFile(path, data, 0o644))
		n := 0
		var last error
		for _, err := range events.Read(context.Background(), path) {
			if last = err; err == nil {
				n++
			}
		}
		require.ErrorIs(t, last, input.ErrCorrupt, name)
		require.Equal(t, errkind.DataLossError, errkind.KindOf(last))
		require.GreaterOrEqual(t, n, 3, name)
	}
}

func TestPathsThatAreNoDirectories(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(file, nil, 0o644))
	for _, dir := range []string{file, filepath.Join(file, "below"), "gs://bucket/run"} {
		_, err := events.Create(dir, events.Options{})
		require.Error(t, err)
		require.NotEqual(t, errkind.Unknown, errkind.KindOr(err, errkind.RuntimeError))
	}
}

// FuzzRead reads arbitrary bytes as an event.
func FuzzRead(f *testing.F) {
	e := events.Event{Time: time.Unix(1, 0), Step: 3, Values: []events.Value{events.Scalar("a", 1), events.Text("b", "c"),
		events.NewHistogram("d", []float64{1, 2})}}
	f.Add(e.Append(nil)[12:])
	f.Fuzz(func(t *testing.T, data []byte) {
		path := filepath.Join(t.TempDir(), "events")
		if err := os.WriteFile(path, input.AppendTFRecord(nil, data), 0o644); err != nil {
			t.Fatal(err)
		}
		for e, err := range events.Read(context.Background(), path) {
			if err == nil {
				e.Append(nil)
			}
		}
	})
}

// TestTheOfficialPackageReadsOurs needs Python with tensorboard, which make test-python installs.
func TestTheOfficialPackageReadsOurs(t *testing.T) {
	if os.Getenv("TPUSTRATEGY_PYTHON_TESTS") != "1" {
		t.Skip("TPUSTRATEGY_PYTHON_TESTS=1 runs this test")
	}
	dir, clock := t.TempDir(), noon()
	w, err := events.Create(dir, events.Options{Now: clock})
	require.NoError(t, err)
	for step := range int64(6) {
		require.NoError(t, w.Write(events.Event{Step: step + 1, Values: []events.Value{
			events.Scalar("loss", 1/float64(step+1)), events.Text("note", "step"), events.NewHistogram("weights",
				[]float64{0, float64(step)})}}))
	}
	require.NoError(t, w.Close())
	// The run was killed after step 6 and resumed from the checkpoint of step 3.
	w, err = events.Create(dir, events.Options{Now: clock, Restart: 4})
	require.NoError(t, err)
	for _, step := range []int64{4, 5} {
		require.NoError(t, w.Write(events.Event{Step: step, Values: []events.Value{events.Scalar("loss", float64(step))}}))
	}
	require.NoError(t, w.Write(events.Event{Step: 6, Values: []events.Value{events.Scalar("loss", math.NaN()),
		events.Hyperparameters(map[string]string{"rate": "0.5", "name": "adam", "tied": "true"}, 5),
		events.HyperparametersEnd(events.Succeeded, 6)}}))
	require.NoError(t, w.Close())

	const script = `
import json, math, sys
from tensorboard.backend.event_processing import event_accumulator, plugin_event_accumulator
all = {k: 0 for k in event_accumulator.DEFAULT_SIZE_GUIDANCE}
a = event_accumulator.EventAccumulator(sys.argv[1], size_guidance=all)
a.Reload()
b = plugin_event_accumulator.EventAccumulator(sys.argv[1], tensor_size_guidance={"text": 0})
b.Reload()  # what the page shows
try:
    from tensorboard.plugins.hparams import metadata, plugin_data_pb2
    def content(tag):
        return b.SummaryMetadata("_hparams_/" + tag).plugin_data.content
    start = metadata.parse_session_start_info_plugin_data(content("session_start_info"))
    end = metadata.parse_session_end_info_plugin_data(content("session_end_info"))
    hparams = {k: [v.WhichOneof("kind"), getattr(v, v.WhichOneof("kind"))] for k, v in start.hparams.items()}
    hparams["status"] = ["end", end.status]
except ImportError as e:
    sys.exit("hparams: " + str(e))
out = {
    "hparams": hparams,
    "tags": {k: v for k, v in a.Tags().items() if isinstance(v, list)},
    "version": a.file_version,
    "loss": [[e.step, None if math.isnan(e.value) else e.value] for e in a.Scalars("loss")],
    "time": a.Scalars("loss")[0].wall_time,
    "text": [[e.step, e.tensor_proto.string_val[0].decode()] for e in b.Tensors("note")],
    "plugins": {t: b.SummaryMetadata(t).plugin_data.plugin_name for t in b.Tags()["tensors"]},
    "histogram": [[e.step, e.histogram_value.num, e.histogram_value.max] for e in a.Histograms("weights")],
}
print(json.dumps(out))
`
	out, err := exec.Command("python3", "-c", script, dir).Output()
	var exit *exec.ExitError
	if e, ok := err.(*exec.ExitError); ok {
		exit = e
	}
	require.NoError(t, err, "%s", exitText(exit))
	var got struct {
		Tags      map[string][]string
		Version   float64
		Loss      [][2]any
		Time      float64
		Text      [][2]any
		Histogram [][3]float64
		Plugins   map[string]string
		Hparams   map[string][2]any
	}
	require.NoError(t, json.Unmarshal(out, &got), "%s", out)
	assert.Equal(t, 2.0, got.Version)
	assert.Equal(t, []string{"loss"}, got.Tags["scalars"])
	assert.Equal(t, [][2]any{{1.0, 1.0}, {2.0, 0.5}, {3.0, float64(float32(1) / 3)}, {4.0, 4.0}, {5.0, 5.0}, {6.0, nil}},
		got.Loss)
	assert.InDelta(t, 1767355204.00025, got.Time, 1e-6)
	assert.Equal(t, [][2]any{{1.0, "step"}, {2.0, "step"}, {3.0, "step"}}, got.Text, "what was purged is not there")
	assert.Equal(t, map[string]string{"loss": "scalars", "note": "text", "weights": "histograms",
		"_hparams_/session_start_info": "hparams", "_hparams_/session_end_info": "hparams"}, got.Plugins)
	assert.Equal(t, map[string][2]any{"rate": {"number_value", 0.5}, "name": {"string_value", "adam"},
		"tied": {"bool_value", true}, "status": {"end", 1.0}}, got.Hparams)
	assert.Equal(t, [][3]float64{{1, 2, 0}, {2, 2, 1}, {3, 2, 2}}, got.Histogram)
}

func exitText(exit *exec.ExitError) string {
	if exit == nil {
		return ""
	}
	return strings.TrimSpace(string(exit.Stderr))
}

// An event that TensorBoard cannot interpret must not be written.
func TestAnEventOfNoKindIsRefused(t *testing.T) {
	w, err := events.Create(t.TempDir(), events.Options{})
	require.NoError(t, err)
	defer w.Close()
	for _, e := range []events.Event{{Session: 99}, {Session: -1}, {Values: []events.Value{{Tag: "x", Kind: 99}}},
		{Values: []events.Value{{Tag: "x", Kind: -1}}}} {
		err := w.Write(e)
		assert.ErrorContains(t, err, "unknown")
		assert.Equal(t, errkind.ValueError, errkind.KindOf(err))
	}
	assert.Empty(t, w.Kept())
	require.NoError(t, w.Write(events.Event{Step: 1, Values: []events.Value{events.Scalar("x", 1)}}))
}
