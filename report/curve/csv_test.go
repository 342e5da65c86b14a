package curve

import (
	"encoding/binary"
	"errors"
	"io"
	"math"
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
	series, err := ReadCSV(
		strings.NewReader(
			"\ufeffstep,epoch,loss,\"held/loss\",learning_rate\r\n1,0,5.5,,0.001\r\n2,0,NaN,4.5,1e-3\r\n3,1,+Inf,,\r\n4,1,1e999"))
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
		assert.Equal(t, errkind.ValueError, errkind.KindOf(err), text)
	}
	broken := errors.New("broken")
	_, err := ReadCSV(io.MultiReader(strings.NewReader("step,loss\n1,2\n"), iotest.ErrReader(broken)))
	require.ErrorIs(t, err, broken)
}

func TestLearningChoosesWhatIsLookedAt(t *testing.T) {
	long := make([]Point, 60)
	series := []Series{{Name: "loss", Points: long}, {Name: "accuracy", Points: points(1)},
		{Name: "held/loss", Points: points(1, 2)}, {Name: "learning_rate", Points: long}}
	p, err := Learning("title", series)
	require.NoError(t, err)
	require.Len(t, p.Series, 2)
	assert.Equal(t, 0.9, p.Series[0].Smooth)
	assert.Equal(t, "held/loss", p.Series[1].Name)
	assert.Zero(t, p.Series[1].Smooth)
	assert.Zero(t, series[0].Smooth, "what was given stays")

	p, err = Learning("title", series, "accuracy", "learning_rate")
	require.NoError(t, err)
	assert.Equal(t, "learning rate", p.Series[1].Axis)

	// With several runs, each run has its own lines.
	other := Series{Run: "other", Name: "loss", Points: points(1, 2)}
	p, err = Learning("title", append(series, other), "loss")
	require.NoError(t, err)
	assert.Equal(t, []Series{{Name: "loss", Points: long, Smooth: 0.9}, other}, p.Series)

	_, err = Learning("title", series, "none")
	require.ErrorContains(t, err,
		`series "none": no series has this name; name some of ["loss" "accuracy" "held/loss" "learning_rate"]`)
	_, err = Learning("title", series[1:2])
	require.ErrorContains(t, err, "name those to draw")
}

// drawn draws series in every mode that supports them.
func drawn(t *testing.T, series []Series) {
	for _, p := range []Plot{{Series: series}, {Series: series, LogY: true}, {Series: series, LogX: true, LogY: true}} {
		p.Series = slices.Clone(p.Series)
		for i := range p.Series {
			if p.Series[i].Axis = []string{"", "", "r"}[i%3]; i%2 == 1 {
				p.Series[i].Smooth = 0.9
			}
		}
		if p.check() == nil {
			draws(t, p)
		}
	}
}

// FuzzReadCSV reads arbitrary text as a table, and a well-formed table with numbers from the fuzzed
// bytes.
func FuzzReadCSV(f *testing.F) {
	f.Add("step,epoch,loss\n1,0,5.5\n2,0,\n", []byte{})
	f.Add("\ufeffstep,\"a\nb\"\r\n1e3,NaN", []byte("0123456789abcdef"))
	f.Add("step,loss\n1,5e-324\n2,1e-323\n", []byte{0, 0, 0, 0, 0, 0, 0, 1, 1, 0, 0, 0, 0, 0, 0, 0, 2})
	f.Fuzz(func(t *testing.T, text string, numbers []byte) {
		series, err := ReadCSV(strings.NewReader(text))
		if err != nil {
			require.Equal(t, errkind.ValueError, errkind.KindOf(err))
		} else {
			drawn(t, series)
		}
		var table strings.Builder
		table.WriteString("step,epoch,loss,held/loss,learning_rate\r\n")
		for row := 0; len(numbers) >= 9 && row < 100; row++ {
			table.WriteString(strconv.Itoa(row))
			for column := range 4 {
				cell := ""
				if len(numbers) >= 9 && (column > 0 || row%2 == 0) {
					x := math.Float64frombits(binary.BigEndian.Uint64(numbers[1:]))
					if numbers[0]%4 == 3 { // close to the previous numbers
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
		drawn(t, series)
	})
}
