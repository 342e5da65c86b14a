package schedule_test

import (
	"fmt"
	"math"
	"testing"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/gobackend"
	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/core/tensors"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/strategy/train/schedule"
)

// all has schedules of every kind.
var all = []schedule.Schedule{
	schedule.Constant(0.1),
	schedule.Linear(0.1, 0.01, 7),
	schedule.Linear(0, 1, 3),
	schedule.Cosine(3e-4, 3e-5, 10),
	schedule.Cosine(1, 0, 100),
	schedule.InverseSquareRoot(0.5, 4),
	schedule.Piecewise(1, schedule.Change{Step: 3, Rate: 0.1}, schedule.Change{Step: 9, Rate: 0.01}),
	schedule.WarmUp(5, schedule.Cosine(0.1, 0, 10)),
	schedule.WarmUp(3, schedule.InverseSquareRoot(0.1, 2)),
	schedule.Constant(0.1).Then(4, schedule.Linear(0.1, 0, 6)).Then(12, schedule.Constant(0.02)),
}

func TestSchedulesAreTheirFormulas(t *testing.T) {
	half := func(x float64) float64 { return (1 + math.Cos(math.Pi*x)) / 2 }
	for _, c := range []struct {
		of   schedule.Schedule
		want map[int64]float64
	}{
		{all[0], map[int64]float64{-1: 0.1, 0: 0.1, 1 << 40: 0.1}},
		{all[1], map[int64]float64{0: 0.1, 1: 0.1 - 0.09/7, 7: 0.01, 8: 0.01}},
		{all[2], map[int64]float64{-5: 0, 0: 0, 1: 1. / 3, 3: 1, 4: 1}},
		{all[3], map[int64]float64{0: 3e-4, 3: 3e-5 + 2.7e-4*half(0.3), 5: 1.65e-4, 10: 3e-5, 99: 3e-5}},
		{all[4], map[int64]float64{99: half(0.99), 100: 0}},
		{all[5], map[int64]float64{0: 0.5, 4: 0.5, 16: 0.25, 400: 0.05}},
		{all[6], map[int64]float64{0: 1, 2: 1, 3: 0.1, 8: 0.1, 9: 0.01}},
		{all[7], map[int64]float64{0: 0, 1: 0.02, 5: 0.1, 10: 0.05, 15: 0, 20: 0}},
		{all[8], map[int64]float64{0: 0, 3: 0.1, 5: 0.1, 11: 0.05}},
		{all[9], map[int64]float64{3: 0.1, 4: 0.1, 7: 0.05, 10: 0, 11: 0, 12: 0.02}},
	} {
		for step, want := range c.want {
			assert.InDelta(t, want, c.of.At(step), 1e-12, "%s at step %d", c.of, step)
		}
	}
	assert.True(t, math.IsNaN(schedule.Schedule{}.At(0)))
}

// Graph and At return the same rates, up to the rounding of float32.
func TestGraphsComputeTheSame(t *testing.T) {
	backend, err := gobackend.New("")
	require.NoError(t, err)
	defer backend.Finalize()
	for _, s := range all {
		exec := graph.MustNewExec(backend, func(step *graph.Node) *graph.Node { return s.Graph(step) })
		for _, step := range []int64{0, 1, 2, 3, 4, 5, 8, 9, 10, 11, 12, 15, 99, 100, 1 << 30} {
			got := exec.MustCall(step)[0]
			require.Equal(t, dtypes.Float32, got.DType())
			want := s.At(step)
			assert.InDelta(t, want, float64(tensors.ToScalar[float32](got)), 3e-7*max(s.At(0), s.At(5)), "%s at step %d", s,
				step)
		}
		exec.Finalize()
	}
}

func TestSchedulesPrintAsGo(t *testing.T) {
	for i, want := range map[int]string{
		0: "Constant(0.1)", 1: "Linear(0.1, 0.01, 7)", 3: "Cosine(0.0003, 3e-05, 10)", 5: "InverseSquareRoot(0.5, 4)",
		6: "Piecewise(1, Change{3, 0.1}, Change{9, 0.01})", 7: "WarmUp(5, Cosine(0.1, 0, 10))",
		9: "Constant(0.1).Then(4, Linear(0.1, 0, 6)).Then(12, Constant(0.02))",
	} {
		assert.Equal(t, want, all[i].String())
		assert.True(t, all[i].IsSet())
		assert.NoError(t, all[i].Validate())
	}
	assert.Equal(t, "Schedule{}", schedule.Schedule{}.String())
}

func TestSchedulesThatAreNone(t *testing.T) {
	backend, err := gobackend.New("")
	require.NoError(t, err)
	defer backend.Finalize()
	nan := math.NaN()
	for _, c := range []struct {
		of   schedule.Schedule
		want string
	}{
		{schedule.Schedule{}, "there is none: it is the zero value"},
		{schedule.Constant(-1), "Constant(-1): -1 is no rate"},
		{schedule.Constant(nan), "Constant(NaN): NaN is no rate"},
		{schedule.Linear(0, math.Inf(1), 5), "+Inf is no rate"},
		{schedule.Linear(0, 1, 0), "0 steps"},
		{schedule.Cosine(1, 0, -3), "-3 steps"},
		{schedule.InverseSquareRoot(1, 0), "0 steps"},
		{schedule.WarmUp(0, schedule.Constant(1)), "0 steps"},
		{schedule.WarmUp(3, schedule.Schedule{}), "there is no schedule before or after the change"},
		{schedule.WarmUp(3, schedule.Constant(-2)), "-2 is no rate"},
		{schedule.Schedule{}.Then(3, schedule.Constant(1)), "there is no schedule before or after the change"},
		{schedule.Constant(1).Then(-3, schedule.Constant(1)), "-3 steps"},
		{schedule.Constant(1).Then(3, schedule.Cosine(1, nan, 2)), "NaN is no rate"},
		{schedule.Piecewise(1, schedule.Change{Step: 5, Rate: 1}, schedule.Change{Step: 5, Rate: 2}),
			"a change at step 5 after one at step 5"},
		{schedule.Piecewise(1, schedule.Change{Step: 5, Rate: -1}), "-1 is no rate"},
		{schedule.Piecewise(1e60), "1e+60 is no rate"},
	} {
		err := c.of.Validate()
		require.ErrorContains(t, err, c.want)
		assert.Equal(t, errkind.ValueError, errkind.KindOf(err))
		_ = c.of.At(3)
	}
	for _, step := range []any{[]int64{1}, float32(1)} {
		_, err := graph.NewExec(backend, func(step *graph.Node) *graph.Node { return schedule.Constant(1).Graph(step) })
		require.NoError(t, err)
		exec := graph.MustNewExec(backend, func(step *graph.Node) *graph.Node { return schedule.Constant(1).Graph(step) })
		_, err = exec.Call(step)
		assert.ErrorContains(t, err, "the number of the step is")
	}
}

// A warm-up is followed by a cosine decay and a constant rate.
func ExampleSchedule_At() {
	s := schedule.WarmUp(2, schedule.Cosine(0.1, 0.02, 4).Then(4, schedule.Constant(0.02)))
	fmt.Println(s)
	for step := range int64(8) {
		fmt.Printf("%.3f ", s.At(step))
	}
	// Output:
	// WarmUp(2, Cosine(0.1, 0.02, 4).Then(4, Constant(0.02)))
	// 0.000 0.050 0.100 0.088 0.060 0.032 0.020 0.020
}
