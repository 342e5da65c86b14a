package curve

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/internal/test/browsertest"
)

func TestPagesAreLegible(t *testing.T) {
	browsertest.Legible(t, draws(t, append([]Plot{sample(), twoRuns()}, slices.Collect(maps.Values(odd()))...)...))
}

// Unusual plots in a browser: each chart has numbers on its axes, and none is NaN.
func TestOddPlotsAreDrawn(t *testing.T) {
	names := slices.Sorted(maps.Keys(odd()))
	var plots []Plot
	for _, name := range names {
		p := odd()[name]
		p.Title = name
		plots = append(plots, p)
	}
	page := draws(t, plots...)
	assert.NotContains(t, string(page), "</script><h1>")
	var found []struct {
		Size    float64
		Ticks   int
		Strange []string
	}
	view := browsertest.Show(t, page, `
		written.length = 0;
		const found = [];
		for (const one of charts) {
			one.chart.redraw(false, true);
			await null; await null;
			const numbers = written.splice(0).map((w) => w.text);
			found.push({ size: one.chart.height, ticks: numbers.length, strange: numbers.filter((text) => /NaN|Infinity|undefined|null/.test(text)) });
		}
		return found;`, browsertest.Window{Width: 400, Height: 2000})[0]
	require.NoError(t, json.Unmarshal(view.Found, &found))
	require.Len(t, found, len(names))
	for i, f := range found {
		assert.Greater(t, f.Ticks, 2, names[i])
		assert.Empty(t, f.Strange, names[i])
	}
}

// The lines are at the positions of their values, and every control of the page works.
func TestAReaderOfAPage(t *testing.T) {
	var got struct {
		Shares                           []float64
		First, Last, Here                string
		Numbers                          []float64
		All, Zoomed, Back                [2]float64
		Log, LogX                        int
		Smooth, Rough, Hidden, Run, Runs []bool
	}
	p := twoRuns()
	view := browsertest.Show(t, draws(t, p), `
		const one = charts[0], found = {}, $ = (s) => document.querySelectorAll(s), ready = async () => { await null; await null; await null; };
		const shown = () => one.chart.series.slice(1).map((s) => s.show);
		const context = one.chart.ctx, ratio = devicePixelRatio;
		found.shares = one.plot.lines.map((line) => {
			const [steps, values] = line.smooth || line.raw, ink = color("--ink" + line.ink);
			let hits = 0;
			steps.forEach((x, i) => {
				const left = one.chart.valToPos(x, "x", true), top = one.chart.valToPos(values[i], line.axis ? "axis " + line.axis : "y", true);
				const { data } = context.getImageData(left - 5, top - 5, 11, 11);
				for (let k = 0; k < data.length; k += 4)
					if ([1, 3, 5].every((at, c) => Math.abs(parseInt(ink.trim().slice(at, at + 2), 16) - data[k + c]) < 40) && data[k + 3] > 128) { hits++; return; }
			});
			return hits / steps.length;
		});
		const ends = one.plot.lines[0].smooth[1];
		found.first = ends[0].toFixed(3); found.last = ends.at(-1).toFixed(3);
		found.numbers = [...$("data")].map((d) => Number(d.value));
		const box = one.chart.over.getBoundingClientRect();
		one.chart.over.dispatchEvent(new MouseEvent("mousemove", { clientX: box.left + one.chart.valToPos(150, "x"), clientY: box.top + 50 }));
		await ready();
		found.here = $("tr[data-line] .here")[1].textContent;
		const range = () => [one.chart.scales.x.min, one.chart.scales.x.max];
		found.all = range();
		$("[name=from]")[0].value = 50; $("[name=to]")[0].value = 60; $("[name=to]")[0].dispatchEvent(new Event("change")); await ready();
		found.zoomed = range();
		$("[name=all]")[0].click(); await ready();
		found.back = range();
		found.smooth = shown();
		$("[name=smooth]")[0].click(); await ready();
		found.rough = shown();
		$("tr[data-line] input")[0].click(); await ready();
		found.hidden = shown();
		$("input.run")[1].click(); await ready();
		found.run = shown();
		$("input.run")[1].click(); await ready();
		found.runs = shown();
		$("[name=logY]")[0].click(); await ready();
		found.log = one.chart.scales.y.distr;
		$("[name=logX]")[0].click(); await ready();
		found.logX = one.chart.scales.x.distr;
		return found;`, browsertest.Windows[0])[0]
	require.NoError(t, json.Unmarshal(view.Found, &got))
	for i, share := range got.Shares {
		assert.Greater(t, share, 0.8, p.Series[i].Name) // other lines cross it
	}
	var numbers []float64
	for _, s := range p.Series {
		f := s.Figures()
		numbers = append(numbers, f.First.Value, f.Last.Value, f.Lowest.Value, f.Highest.Value)
	}
	assert.Equal(t, numbers, got.Numbers, "the table has the figures, to the last digit")
	means := smooth(p.Series[0].Points, p.Series[0].Smooth)
	assert.Equal(t, fmt.Sprintf("%.3f", means[0].Value), got.First, "the smoothed line begins with its own first mean")
	assert.Equal(t, fmt.Sprintf("%.3f", means[len(means)-1].Value), got.Last)
	held := p.Series[1].Points[5]
	assert.Equal(t, fmt.Sprintf("%.5g at %g", held.Value, held.Step), got.Here)
	assert.Equal(t, [2]float64{1, 300}, got.All)
	assert.Equal(t, [2]float64{50, 60}, got.Zoomed)
	assert.Equal(t, got.All, got.Back)
	// For each run: a loss with its means, a held-out loss, and a learning rate.
	assert.Equal(t, []bool{true, true, true, true, true, true, true, true}, got.Smooth)
	assert.Equal(t, []bool{true, false, true, true, true, false, true, true}, got.Rough)
	assert.Equal(t, []bool{false, false, true, true, true, false, true, true}, got.Hidden)
	assert.Equal(t, []bool{false, false, true, true, false, false, false, false}, got.Run)
	assert.Equal(t, got.Hidden, got.Runs)
	assert.Equal(t, []int{3, 3}, []int{got.Log, got.LogX})
}
