package report

import (
	"bytes"
	"encoding/json"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/internal/test/browsertest"
	"github.com/tpustrategy/tpustrategy/report/cost"
)

func TestThePageStandsAlone(t *testing.T) {
	var b bytes.Buffer
	require.NoError(t, sample().WriteHTML(&b))
	text := b.String()
	for _, want := range []string{"train_step", "v5e:2x2", "all-gather", "replica", "/up/weights", "11.00 GiB", "fits",
		"44.00%", "10.00 GiB", "68.8% of the memory of a core", "shard-state <b>parameters</b>",
		"/layers/up", "bf16[32768, 65536]", "/layer_*/weights", "9.00 GiB", "roofline", "without 36 operations", "2.79 GiB",
		"50.00 ms", "model/net.go:41", "model.Net.Loss", "main.&lt;b&gt;", "/up*/&lt;b&gt; (2)",
		"without all-gather over logical of model/net.go:41, forward, up*",
		"With all-to-all over logical of main.go:14, forward", "6 tried, 1 of them rejected by the compiler, 3 left"} {
		assert.Contains(t, text, want)
	}
	for _, no := range []string{"src=", "href=", "@import", "url(", "ZgotmplZ", "/bias<script>", "<b>\"", "fetch("} {
		assert.NotContains(t, text, no)
	}
	assert.Contains(t, text, "/bias&lt;script&gt;")
	assert.Contains(t, text, "Copyright (c)", "the license of the library is with it")
	assert.Contains(t, text, "Derived from the program")
	assert.NotContains(t, text, "No times are predicted")
	assert.NotContains(t, text, "leads to the next plane")
	b.Reset()
	deep := sample()
	deep.Torus.Shape, deep.Torus.Links[0].Axis, deep.Predicted, deep.Schedule.Layers = [3]int{2, 2, 2}, 2, nil, nil
	require.NoError(t, deep.WriteHTML(&b))
	assert.Contains(t, b.String(), "No times are predicted, so the axis shows the numbers of the operations.")
	assert.Contains(t, b.String(), "a diagonal line leads to the next plane")
	assert.Contains(t, b.String(), `<td class="any">z</td>`)
	var bare bytes.Buffer
	require.NoError(t, refused().WriteHTML(&bare))
	assert.NotContains(t, bare.String(), "<script>", "there is nothing to draw")
}

// The figures of the page equal those of the JSON form to the byte, at both window sizes and in
// both themes.
func TestPagesAreLegibleAndHaveTheFiguresOfTheJSON(t *testing.T) {
	for name, r := range map[string]*Report{"fits": sample(), "refused": refused()} {
		t.Run(name, func(t *testing.T) {
			var b bytes.Buffer
			require.NoError(t, r.WriteHTML(&b))
			browsertest.Legible(t, b.Bytes())
			data, err := json.Marshal(r)
			require.NoError(t, err)
			var figures []float64
			for _, m := range regexp.MustCompile(`<data value="(\d+)">`).FindAllStringSubmatch(b.String(), -1) {
				n, err := strconv.ParseFloat(m[1], 64)
				require.NoError(t, err)
				figures = append(figures, n)
			}
			var want struct {
				Memory struct {
					Arguments, Outputs, Temporaries, Code, Aliased, Total, Peak, Needs, Limit float64
					Refused                                                                   bool
				}
				Schedule    *Schedule
				Lines       []Line
				Torus       *cost.Torus
				Collectives []struct {
					Bytes float64
					Moved float64 `json:"moved_bytes"`
				}
				Tensors []struct {
					Bytes float64 `json:"bytes_per_core"`
				}
			}
			require.NoError(t, json.Unmarshal(data, &want))
			m := want.Memory
			all := []float64{m.Arguments, m.Outputs - m.Aliased, m.Temporaries, m.Code, m.Aliased, m.Total, m.Peak, m.Needs,
				m.Limit}
			if m.Refused {
				all = []float64{m.Arguments, m.Needs, m.Limit}
			}
			if s := want.Schedule; s != nil {
				all = append(all, float64(s.Peak))
				for _, x := range s.valuesAtPeak() {
					all = append(all, float64(x.Bytes))
				}
				for _, x := range (&Report{Lines: want.Lines}).sumLines() {
					moved := 0.0
					for _, c := range x.Collectives {
						moved += float64(c.Moved)
					}
					all = append(all, float64(x.PeakBytes), moved)
				}
				for _, x := range linkLoads(want.Torus) {
					all = append(all, float64(x.MaxBytes))
				}
			}
			for _, x := range want.Collectives {
				all = append(all, x.Bytes, x.Moved)
			}
			for _, x := range want.Tensors {
				all = append(all, x.Bytes)
			}
			assert.ElementsMatch(t, all, figures)
		})
	}
}

// When a reader points at an element of a diagram, the page shows the figures of the JSON form.
func TestAReaderOfAPage(t *testing.T) {
	var b bytes.Buffer
	require.NoError(t, sample().WriteHTML(&b))
	var got struct {
		Peak, There, Back, Where      string
		Loop, All, Half               [2]float64
		Progress, Inner, Links, Torus string
		Rows                          []string
	}
	view := browsertest.Show(t, b.Bytes(), `
		const found = {}, $ = (s) => document.querySelector(s), rows = () => [...document.querySelectorAll("#peak tr")].map((r) => r.textContent).join(";");
		found.peak = rows();
		const point = (at, type, x, y) => { const box = at.getBoundingClientRect(); at.dispatchEvent(new PointerEvent(type, { clientX: box.left + x, clientY: box.top + y, buttons: 1, bubbles: true })); };
		const over = chart.over.getBoundingClientRect();
		chart.over.dispatchEvent(new MouseEvent("mousemove", { clientX: over.left + chart.valToPos(0.0485, "x"), clientY: over.top + 20 }));
		await null; await null;
		found.there = rows(); found.where = $("#where").textContent;
		here(null);
		found.back = rows();
		found.rows = written.map((w) => String(w.text));
		found.all = [...view];
		const place = $("#timeline .chart"), wide = place.clientWidth - gutter, x = (s) => gutter + (s - view[0]) / (view[1] - view[0]) * wide;
		point(place, "pointermove", x(0.02), 12);
		found.progress = $("#timeline .pointed").textContent;
		point(place, "pointermove", x(0.001), rowHeight + 12);
		found.inner = $("#timeline .pointed").textContent;
		point(place, "pointermove", x(0.006), 2 * rowHeight + 12);
		found.links = $("#timeline .pointed").textContent;
		const from = x(0.01), to = x(0.02);
		point(place, "pointerdown", from, 12); point(place, "pointermove", to, 12); point(place, "pointerup", to, 12);
		found.loop = [...view];
		$("#timeline [name=in]").click();
		found.half = [...view];
		$("#timeline [name=all]").click();
		$("#torus [value='1']").click();
		const chip = chips.find((c) => c.p === 2);
		point($("#torus .chart"), "pointermove", (chip.left + chip.right) / 2, (chip.top + chip.bottom) / 2);
		found.torus = $("#torus .pointed").textContent;
		return found;`, browsertest.Windows[0])[0]
	require.NoError(t, json.Unmarshal(view.Found, &got))
	assert.Contains(t, got.Peak, "up: /layers/up")
	assert.Equal(t, got.Peak, got.Back)
	assert.NotContains(t, got.There, "up: /layers/up", "it is gone when the step updates")
	assert.Contains(t, got.There, "/layer_*/weightsvariablef32[16384, 16384]1 GiB2")
	assert.Equal(t, "Values in memory at 48 ms, update: 5 GiB", got.Where)
	assert.InDeltaSlice(t, []float64{0, 0.05}, got.All[:], 1e-9, "the whole step")
	assert.Equal(t, "loop, 4 rounds: 40 ms from 0, products", strings.ReplaceAll(got.Progress, "0 us", "0"))
	assert.Equal(t, "product: 7.5 ms from 0, products; up; model/net.go:41", strings.ReplaceAll(got.Inner, "0 us", "0"))
	assert.Equal(t, "gather: 12 ms from 0, concurrent with the core, on links; up", strings.ReplaceAll(got.Links, "0 us",
		"0"))
	assert.InDeltaSlice(t, []float64{0.01, 0.02}, got.Loop[:], 1e-4)
	assert.InDeltaSlice(t, []float64{0.0125, 0.0175}, got.Half[:], 1e-4)
	assert.Equal(t,
		"Device 2 at (0,1,0) communicates over replica with 0, and sends at least 4 MiB per step over this axis.", got.Torus)
	for _, text := range []string{"core", "in loops", "links", "product", "8 GiB"} {
		assert.Contains(t, got.Rows, text)
	}
}

// TestAPageLooksRight renders the page in a browser and checks the picture: the memory bar with its
// parts side by side, and the two halves of a split tensor.
func TestAPageLooksRight(t *testing.T) {
	var b bytes.Buffer
	r := sample()
	r.Schedule, r.Torus, r.AnnotationSuggestions = nil, nil, nil // they use the same colors above the diagram
	require.NoError(t, r.WriteHTML(&b))
	picture := browsertest.Show(t, b.Bytes(), "", browsertest.Window{Width: 1000, Height: 1200})[0].Picture
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
	arguments, outputs, temporaries, free := color{0x44, 0x77, 0xaa}, color{0x66, 0xcc, 0xee}, color{0xee, 0x66, 0x77},
		color{0xee, 0xee, 0xee}
	for name, c := range map[string]color{"arguments": arguments, "outputs": outputs, "temporaries": temporaries,
		"free": free} {
		require.Greater(t, count[c], 1000, name)
	}
	assert.Less(t, first[arguments], first[outputs])
	assert.Less(t, first[outputs], first[temporaries])
	// 4, 1 and 6 of 16 GiB.
	assert.InDelta(t, 4, float64(count[arguments])/float64(count[outputs]), 0.5)
	assert.InDelta(t, 6, float64(count[temporaries])/float64(count[outputs]), 0.7)
	halves := 0
	for c, n := range count {
		// Pale, saturated colors are the tiles.
		high, low := max(c[0], c[1], c[2]), min(c[0], c[1], c[2])
		if n > 3000 && high > 220 && low > 120 && low < 180 {
			halves++
		}
	}
	assert.Equal(t, 2, halves, "the two halves of the split tensor")
}
