package goodput_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/tpustrategy/tpustrategy/fit/goodput"
)

// sum adds all parts.
func sum(s goodput.Shares) float64 {
	return s.Steps + s.Again + s.Start + s.Compile + s.Restore + s.Save + s.Input + s.Peers + s.Hooks + s.Down
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
		real := goodput.Shares{} // actual times
		work := make([]float64, steps+1)
		for life := 0; ; life++ {
			began := clock
			if life > 0 {
				down := pass(30)
				real.Down += down
				began = clock
			}
			own := goodput.History{Began: began, From: saved, To: saved, Seconds: map[string]float64{}}
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
			for own.To < min(end, steps) {
				spend("input", &real.Input, 0.01)
				d := pass(stepTime)
				own.Seconds[[]string{"launch", "result", "own code"}[chance.IntN(3)]] += d
				own.To++
				if own.To <= taken {
					real.Again += work[own.To]
				}
				work[own.To] = d
				spend("exchange", &real.Peers, 0.01)
				spend("hook", &real.Hooks, 0.01)
				if own.To%every == 0 {
					spend("save", &real.Save, 5)
					saved = own.To
				}
			}
			taken = max(taken, own.To)
			own.Seen = clock
			if life == 0 {
				all = own
			} else {
				all = all.Append(own)
			}
			if own.To == steps {
				break
			}
		}
		for _, d := range work {
			real.Steps += d
		}
		got := all.Shares()
		wall := clock.Sub(first).Seconds()
		assert.InDelta(t, wall, got.Wall, 0.01*wall, "seed %d", seed)
		assert.InDelta(t, wall, sum(got), 0.01*wall, "seed %d", seed)
		for name, pair := range map[string][2]float64{"steps": {real.Steps, got.Steps}, "again": {real.Again, got.Again}, "start": {real.Start, got.Start},
			"compile": {real.Compile, got.Compile}, "restore": {real.Restore, got.Restore}, "save": {real.Save, got.Save}, "input": {real.Input, got.Input},
			"peers": {real.Peers, got.Peers}, "hooks": {real.Hooks, got.Hooks}, "down": {real.Down, got.Down}} {
			assert.InDelta(t, pair[0], pair[1], 0.01*wall, "seed %d, %s", seed, name)
		}
		assert.InDelta(t, 1e12*float64(steps)/(wall*2e12), all.Utilization(1e12, 2e12), 0.01)
	}
}

func TestClocksThatJumpLoseNothing(t *testing.T) {
	at := func(s int) time.Time { return time.Unix(int64(s), 0) }
	first := goodput.History{Began: at(100), Seen: at(200), To: 10, Seconds: map[string]float64{"launch": 80}}
	all := first.Append(goodput.History{Began: at(150), Seen: at(180), From: 20, To: 30, Seconds: map[string]float64{"launch": 100, "nonsense": 1}})
	got := all.Shares()
	assert.Equal(t, 2, got.Lives)
	assert.Equal(t, 181.0, got.Wall, "as much as is known")
	assert.InDelta(t, got.Wall, sum(got), 1e-9)
	assert.Zero(t, goodput.History{}.Shares().Goodput())
	assert.Zero(t, goodput.History{}.Utilization(1, 1))
}

func TestTheTextNamesTheLargestFirst(t *testing.T) {
	h := goodput.History{Began: time.Unix(0, 0), Seen: time.Unix(100, 0), To: 5, Seconds: map[string]float64{"launch": 70, "save": 5, "compile": 20}}
	assert.Equal(t, "goodput 70.0 % of 1m40s: compile 20.0 %, start 5.0 %, save 5.0 %", h.Shares().String())
	assert.Equal(t, "goodput 58.3 % of 2m0s in 2 lives: compile 16.7 %, start 8.3 %, down 8.3 %, save 4.2 %, input 4.2 %",
		h.Append(goodput.History{Began: time.Unix(110, 0), Seen: time.Unix(120, 0), From: 5, To: 5, Seconds: map[string]float64{"input": 5}}).Shares().String())
}
