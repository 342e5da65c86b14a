package gomlxexamples

import (
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestApartIsTheLargestDifference(t *testing.T) {
	d, err := apart([]float64{1, 0.5, 201}, []float64{1, 0.5001, 200})
	require.NoError(t, err)
	assert.InDelta(t, 0.005, d, 1e-12, "relative to the value where that is larger than 1")
	d, err = apart([]float64{0.1}, []float64{0.2})
	require.NoError(t, err)
	assert.InDelta(t, 0.1, d, 1e-12)

	_, err = apart([]float64{1}, []float64{1, 2})
	assert.ErrorContains(t, err, "1 values, want 2")
	_, err = apart([]float64{math.NaN()}, []float64{1})
	assert.ErrorContains(t, err, "is NaN, want 1")
	_, err = apart([]float64{1}, []float64{math.NaN()})
	assert.Error(t, err)
}

func TestARunThatLeavesNothingIsFound(t *testing.T) {
	p := program{steps: 2, bar: true, plots: true, resumed: 1, writes: "image.png"}
	r := &run{place: place{dir: t.TempDir()}, losses: []float64{1}}
	assert.Len(t, p.expected(r), 5, "losses, bar, plots, checkpoint, file")

	require.NoError(t, os.Mkdir(r.checkpoint(), 0o755))
	for name, text := range map[string]string{
		"checkpoint/checkpoint-n1.json": "{}", "image.png": "x",
		"checkpoint/training_plot_points.json": `{"MetricName":"loss","Step":2,"Value":0.5}` + "\n" +
			`{"MetricName":"loss","Step":3,"Value":0.25}`,
	} {
		require.NoError(t, os.WriteFile(filepath.Join(r.dir, name), []byte(text), 0o644))
	}
	var err error
	r.points, err = readPoints(r.checkpoint())
	require.NoError(t, err)
	assert.Equal(t, points{names: []string{"loss at 2", "loss at 3"}, values: []float64{0.5, 0.25}}, r.points)
	r.losses, r.output = []float64{1, 2}, "Global Step 2 ... 100% ..."
	assert.Empty(t, p.expected(r))

	r.output = "Global Step 1 ... 50%"
	assert.Equal(t, []string{"no finished progress bar"}, p.expected(r))
	p.unfinished = true
	assert.Empty(t, p.expected(r))
}

func TestARestartThatBeginsAnewIsFound(t *testing.T) {
	assert.Empty(t, program{steps: 100, resumed: 20}.went(&run{losses: make([]float64, 20)}))
	assert.NotEmpty(t, program{steps: 100, resumed: 20}.went(&run{losses: make([]float64, 120)}))
	assert.NotEmpty(t, program{steps: 100, resumed: -1}.went(&run{losses: make([]float64, 100)}))
	assert.Equal(t, 120, program{steps: 100, resumed: 20}.again())
	assert.Equal(t, 100, program{steps: 100, resumed: -1}.again())
}

func TestLossesAreReadWithTheirTimes(t *testing.T) {
	name := filepath.Join(t.TempDir(), "losses.txt")
	require.NoError(t, os.WriteFile(name, []byte("0.5 1000000000\n0.25 2000000000\n0.125 2500000000\n0.1 3000000000\n"),
		0o644))
	r := &run{}
	require.NoError(t, r.read(name))
	assert.Equal(t, []float64{0.5, 0.25, 0.125, 0.1}, r.losses)
	assert.InDelta(t, 2, r.rate(), 1e-9)

	require.NoError(t, os.WriteFile(name, []byte("nonsense\n"), 0o644))
	assert.Error(t, (&run{}).read(name))
	require.NoError(t, (&run{}).read(name+".absent"), "a program that does not train writes none")
}

func TestWhatIsSplitIsReadFromTheExplanation(t *testing.T) {
	r := &run{output: `tpustrategy: program "VariableInitialization" on replica=8,logical=1
tpustrategy:   /w  Float32[64 8]  [8 8]  replica,-  rule 1
tpustrategy: program "Trainer#1": not split as the rules say: /a b/biases (rule 2: dimension 0 of size 5 is not divisible by logical=2)
tpustrategy: program "Trainer#1" on replica=8,logical=1
tpustrategy:   parameter        shape          on one device  split      why
tpustrategy:   arg0             Int32[32 40]   [4 40]         replica,-  data
tpustrategy:   arg1             Int8[3]        [3]            whole      data; 8 does not divide 3
tpustrategy:   /a b/weights     Float32[64 8]  [64 4]         -,logical  rule 1
tpustrategy:   /tokens/biases   Float32[8]     [8]            whole      no rule
said by the program
tpustrategy: program "Evaluator" on replica=8,logical=1
tpustrategy:   arg0             Int32[32 40]   [4 40]         replica,-  data
`}
	data, variables := r.split()
	assert.Equal(t, [2]int{1, 1}, [2]int{data, variables})
	assert.Equal(t, "said by the program\n", r.said())
	data, variables = (&run{output: "Step 1"}).split()
	assert.Zero(t, data+variables)
}
