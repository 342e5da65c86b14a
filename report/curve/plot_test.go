package curve

import (
	"bytes"
	"encoding/json"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/errkind"
)

// sample returns a run of 300 steps.
func sample() Plot {
	r := rand.New(rand.NewPCG(1, 1))
	loss, held, rate := Series{Name: "loss", Smooth: 0.9}, Series{Name: "held/loss"}, Series{Name: "learning_rate",
		Axis: "learning rate"}
	for i := 1; i <= 300; i++ {
		step := float64(i)
		base := 1.4 + 4*math.Exp(-step/40)
		loss.Points = append(loss.Points, Point{step, base + 0.12*r.NormFloat64()})
		if i%25 == 0 {
			held.Points = append(held.Points, Point{step, base + 0.08})
		}
		rate.Points = append(rate.Points, Point{step, 3e-3 * min(1, step/30) * (0.55 + 0.45*math.Cos(math.Pi*step/300))})
	}
	return Plot{Title: "A small GPT <& more>", Y: "loss in nats", Series: []Series{loss, held, rate}}
}

// twoRuns returns a plot of two runs.
func twoRuns() Plot {
	p := sample()
	for i, s := range sample().Series {
		p.Series[i].Run = "first"
		s.Run, s.Points = "second", s.Points[:len(s.Points)*2/3]
		for k := range s.Points {
			s.Points[k].Value *= 1.2
		}
		p.Series = append(p.Series, s)
	}
	return p
}

func points(values ...float64) (out []Point) {
	for i, v := range values {
		out = append(out, Point{float64(i + 1), v})
	}
	return out
}

var script = regexp.MustCompile(`(?s)<script type="application/json">(.*?)</script>`)

// draws returns the page of plots, after checking that its data can be parsed and that a second
// page is the same.
func draws(t *testing.T, plots ...Plot) []byte {
	t.Helper()
	first, err := Page("title", plots...)
	require.NoError(t, err)
	again, err := Page("title", plots...)
	require.NoError(t, err)
	require.True(t, bytes.Equal(first, again))
	data := script.FindAllSubmatch(first, -1)
	require.Len(t, data, len(plots))
	for _, d := range data {
		require.True(t, json.Valid(d[1]), "%s", d[1])
	}
	return first
}

func TestAPageStandsAlone(t *testing.T) {
	page := string(draws(t, sample()))
	for _, no := range []string{"src=", "@import", "url(", "ZgotmplZ", "<& more>"} {
		assert.NotContains(t, page, no)
	}
	assert.Contains(t, page, "A small GPT &lt;&amp; more&gt;")
	assert.Contains(t, page, "Copyright (c)", "the license of the library is with it")
}

// odd returns unusual plots that can be drawn.
func odd() map[string]Plot {
	nan, inf := math.NaN(), math.Inf(1)
	const least, most = math.SmallestNonzeroFloat64, math.MaxFloat64
	var many []Series
	for i := range 20 {
		many = append(many, Series{Run: "run " + string(rune('a'+i%7)), Name: "series " + string(rune('a'+i)),
			Points: points(float64(i), float64(i+1))})
	}
	return map[string]Plot{
		"one point":         {Series: []Series{{Name: "a", Points: points(3)}}},
		"one point of zero": {Series: []Series{{Points: []Point{{0, 0}}}}},
		"constant":          {Series: []Series{{Name: "a", Points: points(2, 2, 2, 2)}}},
		"almost constant":   {Series: []Series{{Name: "a", Points: points(1, 1+1e-15, 1+2e-15)}}},
		"gaps":              {Series: []Series{{Name: "a", Points: points(1, nan, 2, inf, 3, 4, -inf), Smooth: 0.5}}},
		"huge":              {Series: []Series{{Name: "a", Points: points(1e299, -1e299, 1e308, most)}}},
		"tiny":              {Series: []Series{{Name: "a", Points: points(least, 0, 1e-320)}}},
		"an empty series":   {Series: []Series{{Name: "a"}, {Name: "b", Points: points(1, 2)}}},
		"only right":        {LogY: true, Series: []Series{{Name: "a", Points: points(-1, 2), Axis: "r"}}},
		"log with zeros": {LogX: true, LogY: true, Series: []Series{{Name: "a", Points: append(points(0, -1, 10, 1e9),
			Point{0, 1}, Point{-5, 1})}}},
		"log of one":          {LogX: true, LogY: true, Series: []Series{{Name: "a", Points: points(7)}}},
		"log within a decade": {LogY: true, Series: []Series{{Name: "a", Points: points(7, 7.001, 8)}}},
		"log of hundreds":     {LogY: true, Series: []Series{{Name: "a", Points: points(1e-200, 1e200)}}},
		"far steps":           {Series: []Series{{Name: "a", Points: []Point{{-1e12, 1}, {1e12, 2}}}}},
		"near steps":          {Series: []Series{{Name: "a", Points: []Point{{1e15, 1}, {1e15 + 1, 2}, {1e15 + 1, 3}}}}},
		"one step many times": {Series: []Series{{Name: "a", Points: []Point{{1, 1}, {1, 5}, {1, 2}}}}},
		"odd names": {X: "\u202e", Series: []Series{{Run: "</script><h1>", Name: strings.Repeat("verylong", 50) + "]]>",
			Points: points(1, 2)},
			{Name: "日本語 \"&'\x00\xff", Points: points(1, 2)}}},
		"many": {Series: many},
	}
}

func TestWhatCannotBeDrawnIsAnError(t *testing.T) {
	for want, p := range map[string]Plot{
		"no value has a place":             {},
		"no value has a place in it; give": {LogY: true, Series: []Series{{Name: "a", Points: points(0, math.NaN())}}},
		`series "a": point 1 is at step`:   {Series: []Series{{Name: "a", Points: []Point{{1, 1}, {math.NaN(), 1}}}}},
		"at step +Inf":                     {Series: []Series{{Name: "a", Points: []Point{{math.Inf(1), 1}}}}},
		"smoothing by 1":                   {Series: []Series{{Name: "a", Points: points(1), Smooth: 1}}},
		"smoothing by NaN":                 {Series: []Series{{Name: "a", Points: points(1), Smooth: math.NaN()}}},
	} {
		_, err := p.HTML()
		require.ErrorIs(t, err, ErrPlot, want)
		assert.ErrorContains(t, err, want)
		assert.Equal(t, errkind.ValueError, errkind.KindOf(err))
	}
}

// The order of points does not matter.
func TestPointsAreSorted(t *testing.T) {
	p := sample()
	want := draws(t, p)
	rand.New(rand.NewPCG(1, 2)).Shuffle(300, func(i, k int) {
		q := p.Series[0].Points
		q[i], q[k] = q[k], q[i]
	})
	assert.True(t, bytes.Equal(want, draws(t, p)))
}

// A million points are drawn quickly on a small page that contains the two peaks.
func TestAMillionPointsKeepTheirPeaks(t *testing.T) {
	p := Plot{Series: []Series{{Name: "a", Smooth: 0.9}}}
	for i := range 1000000 {
		p.Series[0].Points = append(p.Series[0].Points, Point{float64(i), math.Sin(float64(i) / 1e4)})
	}
	p.Series[0].Points[300000].Value = 10
	p.Series[0].Points[700000].Value = -10
	begin := time.Now()
	page, err := p.HTML()
	require.NoError(t, err)
	assert.Less(t, len(page), 1000<<10)
	assert.Less(t, time.Since(begin), 30*time.Second)
	var data struct{ Lines []struct{ Raw [2][]float64 } }
	require.NoError(t, json.Unmarshal(script.FindSubmatch(page)[1], &data))
	raw := data.Lines[0].Raw
	assert.Less(t, len(raw[0]), mostPoints)
	assert.Contains(t, raw[0], 300000.0)
	assert.Contains(t, raw[1], 10.0)
	assert.Contains(t, raw[1], -10.0)
}

// Smoothing keeps constant and straight lines and does not lag behind a falling line. A noisy last
// value does not pull the end of the line to itself.
func TestSmoothing(t *testing.T) {
	for _, v := range smooth(points(3, 3, 3, 3), 0.9) {
		assert.InDelta(t, 3, v.Value, 1e-12)
	}
	var straight []Point
	for i := range 401 {
		straight = append(straight, Point{float64(i), float64(-2 * i)})
	}
	for i, p := range smooth(straight, 0.8) {
		if i >= 40 && i < len(straight)-40 {
			assert.InDelta(t, straight[i].Value, p.Value, 1e-9)
		}
	}
	noisy := points(slices.Repeat([]float64{1}, 100)...)
	noisy[99].Value = 2
	assert.InDelta(t, 1.1, smooth(noisy, 0.9)[99].Value, 0.01)
	assert.Equal(t, []Point{{1, 1}, {2, 4}}, smooth(points(1, 4), 0))
	got := smooth(points(7.65, math.NaN(), 4, 2.839), 0.5)
	assert.InDelta(t, (7.65+0.5*4+0.25*2.839)/1.75, got[0].Value, 1e-12)
	assert.True(t, math.IsNaN(got[1].Value))
	assert.InDelta(t, (0.5*7.65+4+0.5*2.839)/2, got[2].Value, 1e-12)
	assert.InDelta(t, (2.839+0.5*4+0.25*7.65)/1.75, got[3].Value, 1e-12)
}

// The figures are computed from the measured values, not from the smoothed ones, and the page's
// table contains them.
func TestAPageHasTheFiguresOfItsSeries(t *testing.T) {
	s := Series{Name: "a", Smooth: 0.9, Points: points(5.25, 1, 3, 2.5, math.NaN())}
	f := s.Figures()
	assert.Equal(t, Figures{Points: 5, First: &Point{1, 5.25}, Last: &Point{4, 2.5}, Lowest: &Point{2, 1},
		Highest: &Point{1, 5.25}}, f)
	assert.Equal(t, Figures{Points: 1}, Series{Points: points(math.Inf(1))}.Figures())
	page := string(draws(t, Plot{Series: []Series{s}}))
	assert.Contains(t, page, `<data value="2.5">2.500</data> <small>at 4</small>`)
	assert.Contains(t, page, "1 not finite")
	for v, want := range map[float64]string{1.23456: "1.235", 0: "0", 12345.6: "12346", 0.0003: "0.0003", 1e-9: "1e-09",
		-2: "-2.000"} {
		assert.Equal(t, want, formatShort(v))
	}
}

func TestSaveWritesPagesOnly(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"b.html", "c.HTM"} {
		require.NoError(t, CheckPath(name))
		require.NoError(t, sample().Save(filepath.Join(dir, name)))
		data, err := os.ReadFile(filepath.Join(dir, name))
		require.NoError(t, err)
		assert.True(t, strings.HasPrefix(string(data), "<!DOCTYPE html>"), name)
	}
	for _, name := range []string{"a", "a.pdf", "a.svg", "html"} {
		assert.Equal(t, errkind.ValueError, errkind.KindOf(CheckPath(name)))
		require.ErrorContains(t, sample().Save(filepath.Join(dir, name)), "ends in .html")
	}
}

// If a page cannot be created or written, the previous page stays complete.
func TestSaveLeavesTheEarlierPage(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "curve.html")
	require.NoError(t, sample().Save(path))
	before, err := os.ReadFile(path)
	require.NoError(t, err)
	assert.ErrorIs(t, Plot{}.Save(path), ErrPlot)
	after, err := os.ReadFile(path)
	require.NoError(t, err)
	assert.True(t, bytes.Equal(before, after))
	require.ErrorContains(t, sample().Save(filepath.Join(dir, "none", "curve.html")), "none")

	if _, err := os.Stat("/dev/full"); err == nil {
		full := filepath.Join(dir, "full.html")
		require.NoError(t, os.Symlink("/dev/full", full))
		err := sample().Save(full)
		assert.Equal(t, errkind.ResourceExhaustedError, errkind.KindOf(err), "%v", err)
		require.ErrorContains(t, err, "free some space")
	}
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	for _, e := range entries {
		assert.False(t, strings.HasSuffix(e.Name(), ".tmp"), e.Name())
	}
}
