package goodput_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/tpustrategy/tpustrategy/fit/goodput"
)

// sum adds all parts.
func sum(s goodput.Breakdown) float64 {
	return s.Steps + s.Repeated + s.Start + s.Compile + s.Restore + s.Save + s.Input + s.OtherHosts + s.Hooks + s.Down
}

// TestTheSharesOfRandomHistoriesAddUp kills a run twenty times at random times, restarts it from
// its last checkpoint, and compares the shares with the actual times.
func TestTheSharesOfRandomHistoriesAddUp(t *testing.T) {
	for seed := range uint64(20) {
		chance := rand.New(rand.NewPCG(seed, 3))
		clock := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
		first := clock
		pass := func(mean float64) float64 {
			d := mean * (0.9 + chance.Float64()/5)
			clock = clock.Add(time.Duration(d * float64(time.Second)))
			return d
		}
		stepTime, steps, every := 0.5+chance.Float64(), int64(200+chance.IntN(2000)), int64(20+chance.IntN(100))
		var all goodput.History
		var saved, taken int64
		real := goodput.Breakdown{} // actual times
		work := make([]float64, steps+1)
		for life := 0; ; life++ {
			began := clock
			if life > 0 {
				down := pass(30)
				real.Down += down
				began = clock
			}
			own := goodput.History{StartTime: began, FirstStep: saved, LastStep: saved, Seconds: map[string]float64{}}
			spend := func(kind string, into *float64, mean float64) {
				d := pass(mean)
				*into += d
				own.Seconds[kind] += d
			}
			real.Start += pass(20) // before the watchdog
			spend("setup", &real.Start, 3)
			spend("restore", &real.Restore, 10)
			spend("compile", &real.Compile, 40)
			end := saved + 1 + int64(chance.IntN(300))
			for own.LastStep < min(end, steps) {
				spend("input", &real.Input, 0.01)
				d := pass(stepTime)
				own.Seconds[[]string{"launch", "result", "own code"}[chance.IntN(3)]] += d
				own.LastStep++
				if own.LastStep <= taken {
					real.Repeated += work[own.LastStep]
				}
				work[own.LastStep] = d
				spend("exchange", &real.OtherHosts, 0.01)
				spend("hook", &real.Hooks, 0.01)
				if own.LastStep%every == 0 {
					spend("save", &real.Save, 5)
					saved = own.LastStep
				}
			}
			taken = max(taken, own.LastStep)
			own.EndTime = clock
			if life == 0 {
				all = own
			} else {
				all = all.Append(own)
			}
			if own.LastStep == steps {
				break
			}
		}
		for _, d := range work {
			real.Steps += d
		}
		got := all.Breakdown()
		wall := clock.Sub(first).Seconds()
		assert.InDelta(t, wall, got.WallTime, 0.01*wall, "seed %d", seed)
		assert.InDelta(t, wall, sum(got), 0.01*wall, "seed %d", seed)
		for name, pair := range map[string][2]float64{"steps": {real.Steps, got.Steps}, "again": {real.Repeated,
			got.Repeated}, "start": {real.Start, got.Start},
			"compile": {real.Compile, got.Compile}, "restore": {real.Restore, got.Restore}, "save": {real.Save, got.Save},
			"input": {real.Input, got.Input},
			"peers": {real.OtherHosts, got.OtherHosts}, "hooks": {real.Hooks, got.Hooks}, "down": {real.Down, got.Down}} {
			assert.InDelta(t, pair[0], pair[1], 0.01*wall, "seed %d, %s", seed, name)
		}
		assert.InDelta(t, 1e12*float64(steps)/(wall*2e12), all.Utilization(1e12, 2e12), 0.01)
	}
}

func TestClocksThatJumpLoseNothing(t *testing.T) {
	at := func(s int) time.Time { return time.Unix(int64(s), 0) }
	first := goodput.History{StartTime: at(100), EndTime: at(200), LastStep: 10, Seconds: map[string]float64{"launch": 80}}
	all := first.Append(goodput.History{StartTime: at(150), EndTime: at(180), FirstStep: 20, LastStep: 30,
		Seconds: map[string]float64{"launch": 100, "nonsense": 1}})
	got := all.Breakdown()
	assert.Equal(t, 2, got.Attempts)
	assert.Equal(t, 181.0, got.WallTime, "as much as is known")
	assert.InDelta(t, got.WallTime, sum(got), 1e-9)
	assert.Zero(t, goodput.History{}.Breakdown().Goodput())
	assert.Zero(t, goodput.History{}.Utilization(1, 1))
}

func TestTheTextNamesTheLargestFirst(t *testing.T) {
	h := goodput.History{StartTime: time.Unix(0, 0), EndTime: time.Unix(100, 0), LastStep: 5,
		Seconds: map[string]float64{"launch": 70, "save": 5, "compile": 20}}
	assert.Equal(t, "goodput 70.0 % of 1m40s: compile 20.0 %, start 5.0 %, save 5.0 %", h.Breakdown().String())
	assert.Equal(t,
		"goodput 58.3 % of 2m0s in 2 attempts: compile 16.7 %, start 8.3 %, down 8.3 %, save 4.2 %, input 4.2 %",
		h.Append(goodput.History{StartTime: time.Unix(110, 0), EndTime: time.Unix(120, 0), FirstStep: 5, LastStep: 5,
			Seconds: map[string]float64{"input": 5}}).Breakdown().String())
}
