package curve

import (
	"bytes"
	"encoding/xml"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/errkind"
)

// sample is a run of 300 steps.
func sample() Plot {
	r := rand.New(rand.NewPCG(1, 1))
	loss, held, rate := Series{Name: "loss", Smooth: 0.9}, Series{Name: "held/loss"}, Series{Name: "learning_rate", Right: true}
	for i := 1; i <= 300; i++ {
		step := float64(i)
		base := 1.4 + 4*math.Exp(-step/40)
		loss.Points = append(loss.Points, Point{step, base + 0.12*r.NormFloat64()})
		if i%25 == 0 {
			held.Points = append(held.Points, Point{step, base + 0.08})
		}
		rate.Points = append(rate.Points, Point{step, 3e-3 * min(1, step/30) * (0.55 + 0.45*math.Cos(math.Pi*step/300))})
	}
	return Plot{Title: "A small GPT <& more>", Y: "loss in nats", Right: "learning rate", Series: []Series{loss, held, rate}}
}

// forms draws a plot in each form, checks that it is well-formed, and that a second time it is the
// same.
func forms(t *testing.T, p Plot) {
	t.Helper()
	for _, draw := range []func() ([]byte, error){p.SVG, p.HTML} {
		first, err := draw()
		require.NoError(t, err)
		again, err := draw()
		require.NoError(t, err)
		require.True(t, bytes.Equal(first, again))
	}
	picture, err := p.SVG()
	require.NoError(t, err)
	for d := xml.NewDecoder(bytes.NewReader(picture)); ; {
		if _, err := d.Token(); err == io.EOF {
			break
		} else {
			require.NoError(t, err, "%s", picture)
		}
	}
	assert.NotContains(t, string(picture), "NaN")
	assert.NotContains(t, string(picture), "Inf")
}

func TestEachFormIsDrawnTheSameAgain(t *testing.T) {
	forms(t, sample())
	page, err := sample().HTML()
	require.NoError(t, err)
	for _, no := range []string{"http", "src=", "@import", "url(", "ZgotmplZ", "<& more>"} {
		assert.NotContains(t, string(page), no)
	}
	assert.Contains(t, string(page), "A small GPT &lt;&amp; more&gt;")
}

func points(values ...float64) (out []Point) {
	for i, v := range values {
		out = append(out, Point{float64(i + 1), v})
	}
	return out
}

// What is odd and can be drawn is drawn.
func TestOddPlotsAreDrawn(t *testing.T) {
	nan, inf := math.NaN(), math.Inf(1)
	for name, p := range map[string]Plot{
		"one point":           {Series: []Series{{Name: "a", Points: points(3)}}},
		"one point of zero":   {Series: []Series{{Points: []Point{{0, 0}}}}},
		"constant":            {Series: []Series{{Name: "a", Points: points(2, 2, 2, 2)}}},
		"almost constant":     {Series: []Series{{Name: "a", Points: points(1, 1+1e-16, 1+2e-16)}}},
		"gaps":                {Series: []Series{{Name: "a", Points: points(1, nan, 2, inf, 3, 4, -inf), Smooth: 0.5}}},
		"huge":                {Series: []Series{{Name: "a", Points: points(1e299, -1e299, 1e308, math.MaxFloat64)}}},
		"tiny":                {Series: []Series{{Name: "a", Points: points(5e-324, 0, 1e-320)}}},
		"an empty series":     {Series: []Series{{Name: "a"}, {Name: "b", Points: points(1, 2)}}},
		"only right":          {LogY: true, Right: "r", Series: []Series{{Name: "a", Points: points(-1, 2), Right: true}}},
		"log with zeros":      {LogX: true, LogY: true, Series: []Series{{Name: "a", Points: append(points(0, -1, 10, 1e9), Point{0, 1}, Point{-5, 1})}}},
		"log of one":          {LogX: true, LogY: true, Series: []Series{{Name: "a", Points: points(7)}}},
		"log within a decade": {LogY: true, Series: []Series{{Name: "a", Points: points(7, 7.001, 8)}}},
		"log of hundreds":     {LogY: true, Series: []Series{{Name: "a", Points: points(1e-200, 1e200)}}},
		"negative steps":      {Series: []Series{{Name: "a", Points: []Point{{-1e12, 1}, {1e12, 2}}}}},
		"one step many times": {Series: []Series{{Name: "a", Points: []Point{{1, 1}, {1, 5}, {1, 2}}}}},
		"odd names":           {Title: "\x00\xff<script>", X: "\u202e", Series: []Series{{Name: strings.Repeat("very long ", 50) + "]]>", Points: points(1, 2)}, {Name: "日本語 \"&'", Points: points(1, 2)}}},
		"small":               {Width: 300, Height: 200, Series: []Series{{Name: "a", Points: points(1, 2)}}},
	} {
		if p.Width == 0 {
			p.Width, p.Height = 480, 270
		}
		t.Run(name, func(t *testing.T) { forms(t, p) })
	}
	var many []Series
	for i := range 20 {
		many = append(many, Series{Name: "series number " + string(rune('a'+i)), Points: points(float64(i), float64(i+1))})
	}
	forms(t, Plot{Series: many})
}

func TestWhatCannotBeDrawnIsAnError(t *testing.T) {
	one := []Series{{Name: "a", Points: points(1, 2)}}
	for want, p := range map[string]Plot{
		"no value has a place":             {},
		"no value has a place in it; give": {LogY: true, Series: []Series{{Name: "a", Points: points(0, math.NaN())}}},
		`series "a": point 1 is at step`:   {Series: []Series{{Name: "a", Points: []Point{{1, 1}, {math.NaN(), 1}}}}},
		"at step +Inf":                     {Series: []Series{{Name: "a", Points: []Point{{math.Inf(1), 1}}}}},
		"smoothing by 1":                   {Series: []Series{{Name: "a", Points: points(1), Smooth: 1}}},
		"smoothing by NaN":                 {Series: []Series{{Name: "a", Points: points(1), Smooth: math.NaN()}}},
		"a picture of -1 x 540 pixels":     {Width: -1, Series: one},
		"a picture of 960 x 100000":        {Height: 100000, Series: one},
		"leave no room for the lines":      {Width: 200, Height: 150, Title: "t", Y: "y", Series: []Series{{Name: strings.Repeat("long ", 30), Points: points(1)}, {Name: strings.Repeat("long ", 30), Points: points(1)}}},
	} {
		for _, draw := range []func() ([]byte, error){p.SVG, p.HTML} {
			_, err := draw()
			require.ErrorIs(t, err, ErrPlot, want)
			assert.ErrorContains(t, err, want)
			assert.Equal(t, errkind.ValueError, errkind.Of(err))
		}
	}
}

// The order of points does not matter.
func TestPointsAreSorted(t *testing.T) {
	p := sample()
	want, err := p.SVG()
	require.NoError(t, err)
	rand.New(rand.NewPCG(1, 2)).Shuffle(300, func(i, k int) {
		q := p.Series[0].Points
		q[i], q[k] = q[k], q[i]
	})
	got, err := p.SVG()
	require.NoError(t, err)
	assert.Equal(t, string(want), string(got))
}

// A million points are drawn quickly, in a small file, and the two that stand out are seen.
func TestAMillionPointsKeepTheirPeaks(t *testing.T) {
	p := Plot{Series: []Series{{Name: "a"}}}
	for i := range 1000000 {
		p.Series[0].Points = append(p.Series[0].Points, Point{float64(i), math.Sin(float64(i) / 1e4)})
	}
	p.Series[0].Points[300000].Value = 10
	p.Series[0].Points[700000].Value = -10
	begin := time.Now()
	s, err := p.draw()
	require.NoError(t, err)
	require.Less(t, len(s.lines[0].points), 5*p.columns())
	low, high := 0.0, 0.0
	for _, at := range s.lines[0].points {
		low, high = min(low, at.Value), max(high, at.Value)
	}
	assert.Equal(t, -10.0, low)
	assert.Equal(t, 10.0, high)
	page, err := p.HTML()
	require.NoError(t, err)
	assert.Less(t, len(page), 500<<10)
	assert.Less(t, time.Since(begin), 30*time.Second)
}

func (p Plot) columns() int { return 960 }

// Smoothing keeps what is constant or straight, and does not lag behind what falls.
func TestSmoothing(t *testing.T) {
	for _, v := range smooth(points(3, 3, 3, 3), 0.9) {
		assert.InDelta(t, 3, v.Value, 1e-12)
	}
	var straight []Point
	for i := range 401 {
		straight = append(straight, Point{float64(i), float64(-2 * i)})
	}
	assert.InDelta(t, -400, smooth(straight, 0.8)[200].Value, 1e-9)
	assert.Equal(t, []Point{{1, 1}, {2, 4}}, smooth(points(1, 4), 0))
	got := smooth(points(1, math.NaN(), 4), 0.5)
	assert.InDelta(t, (1+0.5*4)/1.5, got[0].Value, 1e-12)
	assert.True(t, math.IsNaN(got[1].Value))
	assert.InDelta(t, (0.5*1+4)/1.5, got[2].Value, 1e-12)
}

func TestTicksAreEasilyRead(t *testing.T) {
	for _, c := range []struct {
		axis axis
		most int
		want string
	}{
		{axis{low: 0, high: 10}, 5, "0 2 4 6 8 10"},
		{axis{low: 0.93, high: 5.6}, 6, "1 2 3 4 5"},
		{axis{low: -0.003, high: 0.0031}, 6, "-0.002 0 0.002"},
		{axis{low: 1, high: 300}, 8, "50 100 150 200 250 300"},
		{axis{low: 0, high: 1000000}, 5, "0 200k 400k 600k 800k 1M"},
		{axis{low: 12000, high: 12010}, 5, "12000 12002 12004 12006 12008 12010"},
		{axis{low: 0, high: 3e-9}, 3, "0 1e-9 2e-9 3e-9"},
		{axis{low: 0, high: 2e10}, 4, "0 5G 10G 15G 20G"},
		{axis{low: 0.5, high: 2000, log: true}, 10, "1 10 100 1000"},
		{axis{low: 0.9, high: 11, log: true}, 10, "1 2 5 10"},
		{axis{low: 1e-8, high: 1e8, log: true}, 5, "1e-8 0.0001 1 10k 100M"},
		{axis{low: 2, high: 6, log: true}, 5, "2 3 4 5 6"},
		{axis{low: 1, high: 3, whole: true}, 9, "1 2 3"},
		{axis{low: 1, high: 3}, 5, "1.0 1.5 2.0 2.5 3.0"},
	} {
		var got []string
		for _, k := range c.axis.ticks(c.most) {
			got = append(got, k.text)
		}
		assert.Equal(t, c.want, strings.Join(got, " "), "%+v", c.axis)
	}
	for v, want := range map[float64]string{1.23456: "1.235", 0: "0", 12345.6: "12346", 0.0003: "0.0003", 1e-9: "1e-09", -2: "-2.000", math.Inf(-1): "-Inf"} {
		assert.Equal(t, want, short(v))
	}
}

// The table of a page has the values, not the smoothed ones.
func TestAPageHasTheValuesOfItsSeries(t *testing.T) {
	p := Plot{Series: []Series{{Name: "a", Smooth: 0.9, Points: points(5, 1, 3, 2.5)}}}
	page, err := p.HTML()
	require.NoError(t, err)
	assert.Contains(t, string(page), `a</td><td>1.000</td><td class="at">2</td><td>5.000</td><td class="at">1</td><td>2.500</td><td class="at">4</td>`)
	assert.Contains(t, string(page), "a (smoothed)")
}

func TestSaveNamesTheFormByThePath(t *testing.T) {
	dir := t.TempDir()
	for name, begin := range map[string]string{"a.svg": "<svg", "b.html": "<!DOCTYPE html>", "c.SVG": "<svg"} {
		require.NoError(t, CheckPath(name))
		require.NoError(t, sample().Save(filepath.Join(dir, name)))
		data, err := os.ReadFile(filepath.Join(dir, name))
		require.NoError(t, err)
		assert.True(t, strings.HasPrefix(string(data), begin), name)
	}
	for _, name := range []string{"a", "a.pdf", "a.png", "svg"} {
		assert.Equal(t, errkind.ValueError, errkind.Of(CheckPath(name)))
		require.ErrorContains(t, sample().Save(filepath.Join(dir, name)), "ends in .svg or .html")
	}
}

// A picture that could not be drawn or written leaves the earlier one whole.
func TestSaveLeavesTheEarlierPicture(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "curve.svg")
	require.NoError(t, sample().Save(path))
	before, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Error(t, Plot{}.Save(path))
	after, err := os.ReadFile(path)
	require.NoError(t, err)
	assert.True(t, bytes.Equal(before, after))
	require.ErrorContains(t, sample().Save(filepath.Join(dir, "none", "curve.svg")), "none")

	if _, err := os.Stat("/dev/full"); err == nil {
		full := filepath.Join(dir, "full.svg")
		require.NoError(t, os.Symlink("/dev/full", full))
		err := sample().Save(full)
		assert.Equal(t, errkind.ResourceExhaustedError, errkind.Of(err), "%v", err)
		require.ErrorContains(t, err, "free some space")
	}
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	for _, e := range entries {
		assert.False(t, strings.HasSuffix(e.Name(), ".tmp"), e.Name())
	}
	assert.ErrorIs(t, Plot{}.Save(path), ErrPlot)
}
