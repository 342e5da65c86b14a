package plan_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/aot/plan"
	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/logical"
)

// model is a step whose figures depend on the plan: sharding makes it slower, and sharding the
// state over the replicas makes it smaller.
type model struct {
	probes, compiles atomic.Int32
	limit            int64
	// fails returns an error for an operation on a plan.
	fails func(p plan.Plan, asked string) error
	// grows is the ratio of the compiled program's memory to the probe's estimate.
	grows float64
	// slows is the ratio of the compiled program's time to the probe's time; 0 means 1.
	slows func(p plan.Plan) float64
}

func (m *model) ask(p plan.Plan, asked string) error {
	if m.fails == nil {
		return nil
	}
	return m.fails(p, asked)
}

func (m *model) seconds(p plan.Plan) float64 {
	s := 1 + 0.1*math.Log2(float64(p.Logical())) + 0.01*float64(p.State())
	if p.Settings["remat"] == "full" {
		s *= 1.3
	}
	for _, r := range p.Rules { // each sharding of the columns of a pair helps
		if r.Annotation.String() == "-,logical" && r.AppliesTo("/up_1/weights", []int{64, 64}) {
			s *= 0.8
		}
	}
	return s * 16 / float64(p.Replicas*p.Logical())
}

func (m *model) bytes(p plan.Plan) int64 {
	b := 1024.0 / float64(p.Logical())
	if p.State() == logical.ShardParameters {
		b /= float64(p.Replicas)
	}
	if p.Settings["remat"] != "full" {
		b += 512
	}
	return int64(b)
}

func (m *model) Sketch(_ context.Context, p plan.Plan) (plan.Sketch, error) {
	text, err := json.Marshal(p)
	return plan.Sketch{Program: string(text), Bytes: m.bytes(p) / 2, Limit: m.limit, Seconds: m.seconds(p) / 2,
		Expected: m.seconds(p) / 2, Rows: 32,
		Variables: []plan.Variable{{"/up_0/weights", []int{64, 64}}, {"/up_1/weights", []int{64, 64}},
			{"/down/weights", []int{64, 64}}, {"/up_0/biases", []int{64}}}}, errors.Join(err, m.ask(p, "sketch"))
}

func (m *model) Probe(_ context.Context, p plan.Plan) (plan.Figures, error) {
	m.probes.Add(1)
	return plan.Figures{Seconds: m.seconds(p), Bytes: m.bytes(p), Limit: m.limit}, m.ask(p, "probe")
}

func (m *model) Compile(_ context.Context, p plan.Plan) (plan.Figures, error) {
	m.compiles.Add(1)
	seconds := m.seconds(p)
	if m.slows != nil {
		seconds *= m.slows(p)
	}
	return plan.Figures{Seconds: seconds, Bytes: int64(float64(m.bytes(p)) * (1 + m.grows)), Limit: m.limit},
		m.ask(p, "compile")
}

var sixteen = plan.Space{Slices: []plan.Slice{{"v5e:4x4", 16}}, Settings: map[string][]string{"remat": {"none",
	"full"}}}

func best(t *testing.T, r *plan.Result) *plan.Candidate {
	t.Helper()
	c, err := r.Best()
	require.NoError(t, err)
	return c
}

func TestASpaceHasEachChoiceOnce(t *testing.T) {
	all := sixteen.Plans()
	assert.Len(t, all, 2*(4*4+1)) // a single replica has one state sharding
	seen := map[string]bool{}
	for _, p := range all {
		assert.Equal(t, 16, p.Replicas*p.Logical())
		seen[p.String()] = true
	}
	assert.Len(t, seen, len(all))
	two := plan.Space{Slices: []plan.Slice{{"v5e:2x2", 4}}, Logical: []int{4}, Axes: []string{"model", "sequence"}}
	var axes []string
	for _, p := range two.Plans() {
		axes = append(axes, p.String())
	}
	assert.Equal(t, []string{"v5e:2x2: 1 x model=1,sequence=4", "v5e:2x2: 1 x model=2,sequence=2",
		"v5e:2x2: 1 x model=4,sequence=1"}, axes)
}

func TestTheBestPlanIsThatOfAllPlans(t *testing.T) {
	for _, limit := range []int64{1 << 20, 1400, 800, 300, 80} {
		m := &model{limit: limit}
		r, err := plan.Search(t.Context(), sixteen.Plans(), m, plan.Options{Concurrency: 2})
		require.NoError(t, err)
		least, of := math.Inf(1), ""
		for _, p := range sixteen.Plans() {
			if s := m.seconds(p); m.bytes(p) <= limit && s < least {
				least, of = s, p.String()
			}
		}
		assert.Equal(t, of, best(t, r).Plan.String(), "%d", limit)
		assert.Equal(t, plan.Compiled, best(t, r).Verdict)
		assert.LessOrEqual(t, int(m.compiles.Load()), 6)
		assert.Len(t, r.Candidates, len(sixteen.Plans()), "each plan has a verdict")
		for _, c := range r.Candidates {
			assert.NotEqual(t, plan.Sketched, c.Verdict)
		}
	}
}

func TestAPlanThatCannotBeFasterIsNotProbed(t *testing.T) {
	slow := plan.Plan{Slice: "v5e:1x1", Replicas: 1}
	m := &model{}
	r, err := plan.Search(t.Context(), append(sixteen.Plans(), slow), m, plan.Options{Compile: -1})
	require.NoError(t, err)
	last := r.Candidates[len(r.Candidates)-1]
	assert.Equal(t, plan.Slower, last.Verdict)
	assert.Equal(t, "v5e:1x1", last.Plan.Slice)
	assert.EqualValues(t, len(r.Candidates)-1, m.probes.Load())
	assert.Equal(t, plan.Probed, best(t, r).Verdict)
}

func TestWhatWasNotTriedIsSaid(t *testing.T) {
	m := &model{limit: 1 << 20, fails: func(p plan.Plan, asked string) error {
		switch {
		case asked == "sketch" && p.Logical() == 16:
			return errors.New("4 heads cannot be cut into 16 parts")
		case asked == "probe" && p.Logical() == 8:
			return errors.New("the compiler ended")
		}
		return nil
	}}
	r, err := plan.Search(t.Context(), append(sixteen.Plans(), sixteen.Plans()[0]), m, plan.Options{MaxProbes: 20,
		Compile: 1})
	require.NoError(t, err)
	var text bytes.Buffer
	require.NoError(t, r.WriteText(&text))
	for _, want := range []string{"1  compiled whole", "not tried: the time or the number of probes",
		"1  not probed: the program is another plan's",
		"refused by the step or the slice", "v5e:4x4: 1 x logical=16, remat=none: 4 heads cannot be cut into 16 parts"} {
		assert.Contains(t, text.String(), want)
	}
	assert.EqualValues(t, 20, m.probes.Load())
	_, err = plan.Search(t.Context(), sixteen.Plans(),
		&model{fails: func(plan.Plan, string) error { return fmt.Errorf("no model") }}, plan.Options{})
	assert.ErrorContains(t, err, "no model")
	_, err = plan.Search(t.Context(), nil, m, plan.Options{})
	assert.Equal(t, errkind.ValueError, errkind.KindOf(err))
}

func TestAPlanThatDoesNotFitGivesItsPlaceToTheNext(t *testing.T) {
	m := &model{limit: 600, grows: 0.15}
	r, err := plan.Search(t.Context(), sixteen.Plans(), m, plan.Options{})
	require.NoError(t, err)
	c := best(t, r)
	assert.LessOrEqual(t, c.Compiled.Bytes, c.Compiled.Limit)
	r, err = plan.Search(t.Context(), sixteen.Plans(), &model{limit: 10}, plan.Options{})
	require.NoError(t, err)
	_, err = r.Best()
	assert.Equal(t, errkind.ResourceExhaustedError, errkind.KindOf(err))
}

// Probes and compiled programs have different times, so the times of probed plans are corrected
// before they are compared with the times of compiled plans.
func TestProbedAndCompiledPlansAreRankedOnOneScale(t *testing.T) {
	search := func(m *model) *plan.Result {
		r, err := plan.Search(t.Context(), sixteen.Plans(), m, plan.Options{Compile: 2})
		require.NoError(t, err)
		last := 0.0
		for _, c := range r.Candidates {
			if c.Verdict != plan.Compiled && c.Verdict != plan.Probed {
				assert.Zero(t, c.ExpectedSeconds)
				continue
			}
			assert.GreaterOrEqual(t, c.ExpectedSeconds, last, c.Plan.String())
			last = c.ExpectedSeconds
			if c.Compiled != nil {
				assert.InEpsilon(t, c.Compiled.Seconds, c.ExpectedSeconds, 1e-12)
			}
		}
		return r
	}

	// Every compiled program takes three times as long as its probe: two compilations are
	// sufficient.
	m := &model{slows: func(plan.Plan) float64 { return 3 }}
	r := search(m)
	assert.EqualValues(t, 2, m.compiles.Load())
	assert.Equal(t, plan.Compiled, best(t, r).Verdict)
	assert.InEpsilon(t, 3*r.Candidates[2].Probe.Seconds, r.Candidates[2].ExpectedSeconds, 1e-9)
	var text bytes.Buffer
	require.NoError(t, r.WriteText(&text))
	assert.Contains(t, text.String(), "\n  ~")

	// The compiled program of one of the two best plans takes twenty times as long as its probe.
	// Other plans are then ranked higher, and are compiled while they are expected to be the best.
	fastest := best(t, search(&model{})).Plan.String()
	m = &model{slows: func(p plan.Plan) float64 {
		if p.String() == fastest {
			return 20
		}
		return 1
	}}
	r = search(m)
	assert.NotEqual(t, fastest, best(t, r).Plan.String())
	assert.LessOrEqual(t, int(m.compiles.Load()), 4)
	slow := slices.IndexFunc(r.Candidates, func(c *plan.Candidate) bool { return c.Plan.String() == fastest })
	assert.Equal(t, plan.Compiled, r.Candidates[slow].Verdict)
	for _, c := range r.Candidates[slow+1:] {
		if c.Verdict == plan.Probed {
			assert.Greater(t, c.ExpectedSeconds, r.Candidates[slow].ExpectedSeconds)
		}
	}
	assert.Contains(t, []plan.Verdict{plan.Probed, plan.Compiled}, r.Candidates[slow-1].Verdict)

	// Every compiled program differs from its probe in another way: at most twice as many plans are
	// compiled.
	next := 1.0
	m = &model{slows: func(plan.Plan) float64 { next *= 4; return next }}
	search(m)
	assert.LessOrEqual(t, int(m.compiles.Load()), 4)
}

func TestMoneyChooses(t *testing.T) {
	space := plan.Space{Slices: []plan.Slice{{"v5e:2x2", 4}, {"v5e:4x4", 16}, {"v5p:2x2x1", 4}}}
	prices := append(plan.ListPrices(), plan.Price{Generation: "v5p", Dollars: 0.1})
	dollars := func(slice string) (float64, bool) {
		chips := map[string]int{"v5e:2x2": 4, "v5e:4x4": 16, "v5p:2x2x1": 4}[slice]
		d, _, known := prices.HourlyPrice(slice[:3], chips)
		return d, known
	}
	for _, x := range []struct {
		o    plan.Options
		want string
	}{
		{plan.Options{}, "v5e:4x4"},
		{plan.Options{Goal: plan.Cheapest}, "v5p:2x2x1"},
		{plan.Options{Budget: 5}, "v5e:2x2"}, // as fast as v5p:2x2x1, and first
	} {
		x.o.HourlyPrice = dollars
		r, err := plan.Search(t.Context(), space.Plans(), &model{}, x.o)
		require.NoError(t, err)
		assert.Equal(t, x.want, best(t, r).Plan.Slice)
	}
	r, err := plan.Search(t.Context(), space.Plans(), &model{}, plan.Options{Goal: plan.Cheapest})
	require.NoError(t, err)
	_, err = r.Best()
	assert.ErrorContains(t, err, "too dear", "without prices nothing is cheap")
	_, err = plan.ParsePrice("v5e=0.6")
	require.NoError(t, err)
	for _, bad := range []string{"", "v5e", "v5e=-1", "v5e=x", "v99=1", "v5e=NaN"} {
		_, err = plan.ParsePrice(bad)
		assert.Equal(t, errkind.ValueError, errkind.KindOf(err), bad)
	}
}

func TestSplitsOfGroupsAreSearched(t *testing.T) {
	space := plan.Space{Slices: []plan.Slice{{"v5e:2x2", 4}}, Logical: []int{2},
		States: []logical.StateSharding{logical.ShardGradients}}
	r, err := plan.Search(t.Context(), space.Plans(), &model{}, plan.Options{Splits: true, Concurrency: 2})
	require.NoError(t, err)
	c := best(t, r)
	assert.Equal(t, "searched", c.Plan.RulesName)
	assert.Equal(t, logical.ShardGradients, c.Plan.State())
	i := slices.IndexFunc(c.Plan.Rules, func(r logical.Rule) bool {
		return r.AppliesTo("/up_7/weights", []int{64, 64}) &&
			r.State == 0
	})
	require.GreaterOrEqual(t, i, 0, "the layers are one group")
	assert.Equal(t, "-,logical", c.Plan.Rules[i].Annotation.String())
}

func TestASearchEndsWithItsContext(t *testing.T) {
	for _, at := range []string{"sketch", "probe", "compile"} {
		ctx, cancel := context.WithCancelCause(t.Context())
		stopped := errors.New("stopped")
		_, err := plan.Search(ctx, sixteen.Plans(), &model{fails: func(_ plan.Plan, asked string) error {
			if asked == at {
				cancel(stopped)
			}
			return nil
		}}, plan.Options{Concurrency: 2})
		assert.ErrorIs(t, err, stopped, at)
	}
}
