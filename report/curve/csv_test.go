package curve

import (
	"cmp"
	"encoding/binary"
	"errors"
	"io"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/errkind"
)

func TestTheTableOfARunIsRead(t *testing.T) {
	series, err := ReadCSV(strings.NewReader("\ufeffstep,epoch,loss,\"held/loss\",learning_rate\r\n1,0,5.5,,0.001\r\n2,0,NaN,4.5,1e-3\r\n3,1,+Inf,,\r\n4,1,1e999"))
	require.NoError(t, err)
	require.Len(t, series, 3)
	assert.Equal(t, "loss", series[0].Name)
	require.Len(t, series[0].Points, 3)
	assert.Equal(t, Point{1, 5.5}, series[0].Points[0])
	assert.True(t, math.IsNaN(series[0].Points[1].Value))
	assert.True(t, math.IsInf(series[0].Points[2].Value, 1))
	assert.Equal(t, Series{Name: "held/loss", Points: []Point{{2, 4.5}}}, series[1])
	assert.Equal(t, []Point{{1, 0.001}, {2, 0.001}}, series[2].Points)

	none, err := ReadCSV(strings.NewReader("step,epoch,loss\n"))
	require.NoError(t, err)
	assert.Equal(t, []Series{{Name: "loss"}}, none)
}

func TestATableThatIsWrongIsRefused(t *testing.T) {
	for text, want := range map[string]string{
		"":                              "it is empty",
		"a,b\n1,2\n":                    `none of the columns ["a" "b"] is step`,
		"step,loss,loss\n":              `line 1, column "loss": it is there twice`,
		"step,step\n":                   `column "step": it is there twice`,
		"step,loss\nx,1\n":              `line 2, column "step": "x" is no step`,
		"step,loss\nNaN,1\n":            `"NaN" is no step`,
		"step,loss\n1,2\n2,abc\n":       `line 3, column "loss": "abc" is no number`,
		"step,loss\n1\n2,2\n":           "line 2: 1 cells, and 2 columns",
		"step,loss\n1,2,3\n":            "line 2: 3 cells, and 2 columns",
		"step,loss\n1,\"2\n":            "line 2",
		"step,\n\"0":                    "line 2",
		"step,loss\n1,\"2\"x,\n2,4\n\n": "line 2",
	} {
		_, err := ReadCSV(strings.NewReader(text))
		require.ErrorContains(t, err, "curve: read table", text)
		assert.ErrorContains(t, err, want, text)
		assert.Equal(t, errkind.ValueError, errkind.Of(err), text)
	}
	broken := errors.New("broken")
	_, err := ReadCSV(io.MultiReader(strings.NewReader("step,loss\n1,2\n"), iotest.ErrReader(broken)))
	require.ErrorIs(t, err, broken)
}

func TestLearningChoosesWhatIsLookedAt(t *testing.T) {
	long := make([]Point, 60)
	series := []Series{{Name: "loss", Points: long}, {Name: "accuracy", Points: points(1)}, {Name: "held/loss", Points: points(1, 2)}, {Name: "learning_rate", Points: long}}
	p, err := Learning("title", series)
	require.NoError(t, err)
	require.Len(t, p.Series, 2)
	assert.Equal(t, 0.9, p.Series[0].Smooth)
	assert.Equal(t, "held/loss", p.Series[1].Name)
	assert.Zero(t, p.Series[1].Smooth)
	assert.Zero(t, series[0].Smooth, "what was given stays")

	p, err = Learning("title", series, "accuracy", "learning_rate")
	require.NoError(t, err)
	assert.True(t, p.Series[1].Right)
	assert.Equal(t, "learning rate", p.Right)

	_, err = Learning("title", series, "none")
	require.ErrorContains(t, err, `series "none": no series has this name; name some of ["loss" "accuracy" "held/loss" "learning_rate"]`)
	_, err = Learning("title", series[1:2])
	require.ErrorContains(t, err, "name those to draw")
}

// notNumbers matches a number of a picture that is none.
var notNumbers = regexp.MustCompile(`="[^"]*(NaN|Inf)[^"]*"`)

// draws draws series in each way, and checks that the pictures have numbers in them only.
func draws(t *testing.T, series []Series) {
	for _, p := range []Plot{{Series: series}, {Series: series, LogY: true}, {Series: series, LogX: true, LogY: true}} {
		p.Series = slices.Clone(p.Series)
		for i := range p.Series {
			if p.Series[i].Right = i%3 == 2; i%2 == 1 {
				p.Series[i].Smooth = 0.9
			}
		}
		svg, err := p.SVG()
		if err != nil {
			require.ErrorIs(t, err, ErrPlot)
			continue
		}
		if found := notNumbers.Find(svg); found != nil {
			t.Fatalf("%s is in the picture of %v", found, series)
		}
		_, err = p.HTML()
		require.NoError(t, err, "%v", series)
	}
}

// A picture of values next to nothing, or of all that there are, has a place for each.
func TestExtremeValuesHavePlaces(t *testing.T) {
	const least, most = math.SmallestNonzeroFloat64, math.MaxFloat64
	for _, values := range [][]float64{{least, 2 * least}, {least, 3 * least, -least}, {0, least}, {1e-320, 5e-320, 2e-310}, {1e-308, 2e-308}, {1e-300, 3e-300},
		{-most, most}, {most, most / 2}, {least, most}, {most, math.Inf(1)}, {-1e308, 1e308, 5}, {1, 1 + 1e-15}, {1e-310, 1}} {
		steps := make([]Point, len(values))
		for i, v := range values {
			steps[i] = Point{math.Abs(v), float64(i)}
		}
		slices.SortFunc(steps, func(a, b Point) int { return cmp.Compare(a.Step, b.Step) })
		draws(t, []Series{{Name: "loss", Points: points(values...)}})
		draws(t, []Series{{Name: "steps", Points: steps}})
	}
}

// FuzzReadCSV reads any text as a table, and one that has the form of a table, of numbers that are
// made of the bytes.
func FuzzReadCSV(f *testing.F) {
	f.Add("step,epoch,loss\n1,0,5.5\n2,0,\n", []byte{})
	f.Add("\ufeffstep,\"a\nb\"\r\n1e3,NaN", []byte("0123456789abcdef"))
	f.Add("step,loss\n1,5e-324\n2,1e-323\n", []byte{0, 0, 0, 0, 0, 0, 0, 1, 1, 0, 0, 0, 0, 0, 0, 0, 2})
	f.Fuzz(func(t *testing.T, text string, numbers []byte) {
		series, err := ReadCSV(strings.NewReader(text))
		if err != nil {
			require.Equal(t, errkind.ValueError, errkind.Of(err))
		} else {
			draws(t, series)
		}
		var table strings.Builder
		table.WriteString("step,epoch,loss,held/loss,learning_rate\r\n")
		for row := 0; len(numbers) >= 9 && row < 100; row++ {
			table.WriteString(strconv.Itoa(row))
			for column := range 4 {
				cell := ""
				if len(numbers) >= 9 && (column > 0 || row%2 == 0) {
					x := math.Float64frombits(binary.BigEndian.Uint64(numbers[1:]))
					if numbers[0]%4 == 3 { // near the numbers before
						x = float64(int8(numbers[1])) * math.Pow(10, float64(int8(numbers[2])))
					}
					cell, numbers = strconv.FormatFloat(x, 'g', -1, 64), numbers[9:]
				}
				table.WriteString("," + cell)
			}
			table.WriteString("\r\n")
		}
		series, err = ReadCSV(strings.NewReader(table.String()))
		require.NoError(t, err, "%s", table.String())
		require.Len(t, series, 3)
		draws(t, series)
	})
}
