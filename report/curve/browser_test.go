package curve

import (
	"bytes"
	"fmt"
	"html"
	"image"
	"image/color"
	"math"
	"regexp"
	"strconv"
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

// inks are the colors of the light theme, or of the dark one, by their names.
func inks(dark bool) map[string]color.NRGBA {
	of := strings.Split(css, "@media")[map[bool]int{true: 1}[dark]]
	all := map[string]color.NRGBA{}
	for _, m := range regexp.MustCompile(`\.(\w+)\{color:#([0-9a-f]{6})\}`).FindAllStringSubmatch(of, -1) {
		v, _ := strconv.ParseUint(m[2], 16, 32)
		all[m[1]] = color.NRGBA{R: uint8(v >> 16), G: uint8(v >> 8), B: uint8(v), A: 255}
	}
	return all
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
func hits(s *scene, picture image.Image, inks map[string]color.NRGBA, scale, left, top float64) (out []float64) {
	for i, l := range s.lines {
		y := s.y
		if l.right {
			y = s.right
		}
		found := 0.0
		for _, at := range l.points {
			if hasLine(picture, left+s.x.at(at.Step)*scale, top+y.at(at.Value)*scale, inks[inkOf(i)]) {
				found++
			}
		}
		out = append(out, found/float64(len(l.points)))
	}
	return out
}

// TestThePictureHasItsLines reads the picture back: each point of each line is on its path, and no text
// stands on another, or outside.
func TestThePictureHasItsLines(t *testing.T) {
	s, err := sample().draw()
	require.NoError(t, err)
	picture := s.out.String()
	for _, l := range s.lines {
		y := s.y
		if l.right {
			y = s.right
		}
		for _, at := range l.points {
			require.Contains(t, picture, coordinate(s.x.at(at.Step))+" "+coordinate(y.at(at.Value)), l.name)
		}
	}
	var boxes [][4]float64
	for _, m := range regexp.MustCompile(`<text x="(\S+)" y="(\S+)" font-size="(\S+)" (.*) fill="currentColor">(.*)</text>`).FindAllStringSubmatch(picture, -1) {
		var x, y, size float64
		_, err := fmt.Sscan(m[1], &x)
		require.NoError(t, err)
		_, err = fmt.Sscan(m[2], &y)
		require.NoError(t, err)
		_, err = fmt.Sscan(m[3], &size)
		require.NoError(t, err)
		w := measure(html.UnescapeString(m[5]), size)
		switch {
		case strings.Contains(m[4], "middle"):
			x -= w / 2
		case strings.Contains(m[4], "end"):
			x -= w
		}
		box := [4]float64{x, y - 0.7*size, x + w, y}
		assert.True(t, box[0] >= 0 && box[1] >= 0 && box[2] <= 960 && box[3] <= 540, m[5])
		for _, other := range boxes {
			assert.False(t, box[0] < other[2] && other[0] < box[2] && box[1] < other[3] && other[1] < box[3], m[5])
		}
		boxes = append(boxes, box)
	}
	require.Greater(t, len(boxes), 15)
}

// A browser shows the page in both themes: the lines where they should be, nothing beside the window,
// and the values under the pointer.
func TestAPageLooksRight(t *testing.T) {
	page, err := sample().HTML()
	require.NoError(t, err)
	s, err := sample().draw()
	require.NoError(t, err)
	script := `<script>
const area = plot.getBoundingClientRect();
plot.dispatchEvent(new PointerEvent("pointermove", {clientX: area.left + area.width * ` + fmt.Sprintf("%g", s.x.at(150)/960) + `, clientY: area.top + 100}));
document.body.dataset.found = [document.documentElement.scrollWidth, innerWidth, area.left, area.top, area.width, tip.style.visibility,
	tip.getBoundingClientRect().right <= innerWidth, tip.innerText.replace(/\s+/g, " ")].join("|");
</script></body>`
	page = bytes.Replace(page, []byte("</body>"), []byte(script), 1)
	for _, dark := range []bool{false, true} {
		colors := inks(dark)
		scheme := map[bool]string{false: "1", true: "0"}[dark]
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
		assert.True(t, near(picture.At(5, 5), colors["b"], 0), "the page's ground")
		for i, share := range hits(s, picture, colors, width/960, left, top) {
			// The values beside the pointer stand before some of the lines.
			assert.Greater(t, share, 0.6, s.lines[i].name)
		}
	}
}
