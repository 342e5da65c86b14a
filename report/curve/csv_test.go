package curve

import (
	"errors"
	"io"
	"math"
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
		var e *TableError
		require.ErrorAs(t, err, &e, text)
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

func FuzzReadCSV(f *testing.F) {
	f.Add("step,epoch,loss\n1,0,5.5\n2,0,\n")
	f.Add("\ufeffstep,\"a\nb\"\r\n1e3,NaN")
	f.Fuzz(func(t *testing.T, text string) {
		series, err := ReadCSV(strings.NewReader(text))
		if err != nil {
			var e *TableError
			require.ErrorAs(t, err, &e)
			return
		}
		if _, err := (Plot{Series: series}).SVG(); err != nil {
			var e *PlotError
			require.ErrorAs(t, err, &e)
		}
	})
}
