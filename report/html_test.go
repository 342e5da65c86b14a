package report

import (
	"bytes"
	"encoding/json"
	"regexp"
	"strconv"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/internal/test/browsertest"
)

func TestThePageStandsAlone(t *testing.T) {
	var b bytes.Buffer
	require.NoError(t, sample().WriteHTML(&b))
	text := b.String()
	for _, want := range []string{"train_step", "v5e:2x2", "all-gather", "replica", "/up/weights", "11.00 GiB", "fits", "44.00%", "10.00 GiB", "68.8% of the memory of a core", "shard-state <b>parameters</b>", "/layers/up", "bf16[64, 2048]", "roofline", "without 36 operations", "2.79 GiB"} {
		assert.Contains(t, text, want)
	}
	assert.NotContains(t, text, "<script")
	assert.NotContains(t, text, "http")
	assert.Contains(t, text, "/bias&lt;script&gt;")
	assert.NotContains(t, text, "ZgotmplZ")
}

// The figures of the page are those of the JSON, to the byte, and both windows of both themes show all.
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
				Temporaries []struct{ Bytes float64 }
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
			all := []float64{m.Arguments, m.Outputs - m.Aliased, m.Temporaries, m.Code, m.Aliased, m.Total, m.Peak, m.Needs, m.Limit}
			if m.Refused {
				all = []float64{m.Arguments, m.Needs, m.Limit}
			}
			for _, x := range want.Temporaries {
				all = append(all, x.Bytes)
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

// TestAPageLooksRight shows the page in a browser and looks at the picture: the memory bar, with
// its parts side by side, and the two halves of a split tensor.
func TestAPageLooksRight(t *testing.T) {
	var b bytes.Buffer
	require.NoError(t, sample().WriteHTML(&b))
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
