package curve

import (
	"bytes"
	"fmt"
	"image"
	"image/color"
	"image/png"
	"math"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/internal/test/browsertest"
)

func near(a color.Color, b color.NRGBA, by int) bool {
	r, g, bl, _ := a.RGBA()
	d := func(x uint32, y uint8) bool { return math.Abs(float64(x>>8)-float64(y)) <= float64(by) }
	return d(r, b.R) && d(g, b.G) && d(bl, b.B)
}

// hasLine reports whether the color is found within two pixels of a place.
func hasLine(picture image.Image, x, y float64, c color.NRGBA) bool {
	for dx := -2; dx <= 2; dx++ {
		for dy := -2; dy <= 2; dy++ {
			if near(picture.At(int(x)+dx, int(y)+dy), c, 40) {
				return true
			}
		}
	}
	return false
}

// hits is the share of the points of each line that have its color in a picture, of which a pixel of
// the plot is scale pixels, from a place on.
func hits(s *scene, picture image.Image, t theme, scale, left, top float64) (out []float64) {
	for i, l := range s.lines {
		y := s.y
		if l.right {
			y = s.right
		}
		found := 0.0
		for _, at := range l.points {
			if hasLine(picture, left+s.x.at(at.Step)*scale, top+y.at(at.Value)*scale, t.series[i]) {
				found++
			}
		}
		out = append(out, found/float64(len(l.points)))
	}
	return out
}

func TestThePictureHasItsLines(t *testing.T) {
	s, err := sample().layout()
	require.NoError(t, err)
	data, err := sample().PNG()
	require.NoError(t, err)
	picture, err := png.Decode(bytes.NewReader(data))
	require.NoError(t, err)
	assert.Equal(t, image.Rect(0, 0, 1920, 1080), picture.Bounds())
	for i, share := range hits(s, picture, light, density, 0, 0) {
		assert.Greater(t, share, 0.95, s.lines[i].name)
	}
	// Nothing is painted on the edge.
	for x := range 1920 {
		require.True(t, near(picture.At(x, 0), light.back, 0) && near(picture.At(x, 1079), light.back, 0))
	}
	for y := range 1080 {
		require.True(t, near(picture.At(0, y), light.back, 0) && near(picture.At(1919, y), light.back, 0))
	}
	// No text stands on another, or outside.
	var boxes [][4]float64
	for _, l := range s.labels {
		w := measure(l.text, l.size, l.bold)
		x := l.at.x - map[anchor]float64{start: 0, middle: w / 2, end: w}[l.anchor]
		box := [4]float64{x, l.at.y - 0.7*l.size, x + w, l.at.y}
		assert.True(t, box[0] >= 0 && box[1] >= 0 && box[2] <= s.width && box[3] <= s.height, l.text)
		for _, other := range boxes {
			assert.False(t, box[0] < other[2] && other[0] < box[2] && box[1] < other[3] && other[1] < box[3], l.text)
		}
		boxes = append(boxes, box)
	}
}

// A browser shows the page in both themes: the lines where they should be, nothing beside the window,
// and the values under the pointer.
func TestAPageLooksRight(t *testing.T) {
	page, err := sample().HTML()
	require.NoError(t, err)
	s, err := sample().layout()
	require.NoError(t, err)
	script := `<script>
const area = plot.getBoundingClientRect();
plot.dispatchEvent(new PointerEvent("pointermove", {clientX: area.left + area.width * ` + fmt.Sprintf("%g", s.x.at(150)/s.width) + `, clientY: area.top + 100}));
document.body.dataset.found = [document.documentElement.scrollWidth, innerWidth, area.left, area.top, area.width, tip.style.visibility,
	tip.getBoundingClientRect().right <= innerWidth, tip.innerText.replace(/\s+/g, " ")].join("|");
</script></body>`
	page = bytes.Replace(page, []byte("</body>"), []byte(script), 1)
	for _, colors := range []theme{light, dark} {
		scheme := map[bool]string{false: "1", true: "0"}[colors.back == dark.back]
		printed, picture := browsertest.Show(t, page, 1000, 900, "--blink-settings=preferredColorScheme="+scheme)
		found := regexp.MustCompile(`data-found="([^"]*)"`).FindStringSubmatch(printed)
		require.Len(t, found, 2, "the page's program ran")
		var wide, window, left, top, width float64
		parts := strings.Split(found[1], "|")
		require.Len(t, parts, 8, found[1])
		for i, v := range []*float64{&wide, &window, &left, &top, &width} {
			_, err := fmt.Sscan(parts[i], v)
			require.NoError(t, err)
		}
		assert.LessOrEqual(t, wide, window, "nothing is wider than the window")
		assert.Equal(t, "visible", parts[5])
		assert.Equal(t, "true", parts[6])
		var held float64
		for _, at := range sample().Series[1].Points {
			if at.Step == 150 {
				held = at.Value
			}
		}
		assert.Contains(t, parts[7], "step 150 ")
		assert.Contains(t, parts[7], fmt.Sprintf("held/loss %.5g", held))
		assert.True(t, near(picture.At(5, 5), colors.back, 0), "the page's ground")
		for i, share := range hits(s, picture, colors, width/s.width, left, top) {
			// The values beside the pointer stand before some of the lines.
			assert.Greater(t, share, 0.6, s.lines[i].name)
		}
	}
}
