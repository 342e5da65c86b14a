package ahead

import (
	"bytes"
	"cmp"
	"fmt"
	"math"
	"os"
	"slices"
	"strconv"
	"testing"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/ml/layers"
	"github.com/gomlx/gomlx/ml/model"
	"github.com/gomlx/gomlx/ml/train/optimizer"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/aot/plan"
	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/internal/test/plugintest"
	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/pjrt/worker"
	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/strategy/train"
)

var workerCommand []string

func TestMain(m *testing.M) {
	workerCommand = worker.Main()
	os.Exit(m.Run())
}

// perceptron is a step without annotations, of two pairs of layers.
func perceptron(strat *strategy.TPUStrategy, settings map[string]string) (Step, []any, error) {
	microbatches, err := strconv.Atoi(settings["microbatches"])
	if err != nil {
		return nil, nil, err
	}
	loss := func(rc *strategy.ReplicaContext, in []*graph.Node) *graph.Node {
		x := in[0]
		for i := range 1 {
			h := layers.Dense(rc.Scope(fmt.Sprintf("up_%d", i)), x, false, 16384)
			x = layers.Dense(rc.Scope(fmt.Sprintf("down_%d", i)), graph.Tanh(h), false, 4096)
		}
		return graph.ReduceAllMean(graph.Square(graph.Sub(x, in[0])))
	}
	step, err := train.New(strat, model.NewStore(), optimizer.Adam().Done(), loss, train.Options{Name: "perceptron",
		Accumulate: microbatches})
	return step, []any{shapes.Make(dtypes.Float32, 8192, 4096)}, err
}

// splittings are six ways to split the perceptron.
func splittings() (sets []plan.RuleSet) {
	over := func(name string, up, down [2]string) {
		sets = append(sets, plan.RuleSet{Name: name, Rules: logical.Rules{logical.Match(`/up_\d/dense/weights$`,
			logical.SplitOverAxes(up[:]...)), logical.Match(`/down_\d/dense/weights$`, logical.SplitOverAxes(down[:]...))}})
	}
	const p = logical.LogicalAxis
	over("pairs", [2]string{"", p}, [2]string{p, ""})
	over("columns", [2]string{"", p}, [2]string{"", p})
	over("rows", [2]string{p, ""}, [2]string{p, ""})
	over("crossed", [2]string{p, ""}, [2]string{"", p})
	over("up", [2]string{"", p}, [2]string{"", ""})
	return append(sets, plan.RuleSet{Name: "none"})
}

// The order of probes is the order of finished programs, the best of the three plans that a search compiles
// is near the best of all, and what a probe says of memory is near what the program takes. `make
// test-plan` takes all 232
// plans, and this some; TPUSTRATEGY_PLANS_KEPT is a folder in which it goes on where it was interrupted.
func TestAOTLargeProbesOrderPlansAsFinishedProgramsDo(t *testing.T) {
	plugintest.Large(t)
	if !plugintest.TPUChild(t) {
		return
	}
	space := plan.Space{Rules: splittings(), Settings: map[string][]string{"microbatches": {"1", "2", "4", "8"}}}
	space.Slices = []plan.Slice{{Name: "v5e:2x4", Devices: 8}}
	plans := space.Plans()
	require.Len(t, plans, 232)
	some := 5
	if text := os.Getenv("TPUSTRATEGY_PLANS"); text != "" {
		var err error
		some, err = strconv.Atoi(text)
		require.NoError(t, err)
	}
	var taken []plan.Plan
	for i := range min(some, len(plans)) {
		taken = append(taken, plans[i*len(plans)/some])
	}
	plans = taken
	result, err := Search{
		Topologies: []string{"v5e:2x4"}, Worker: workerCommand, CacheDir: os.Getenv("TPUSTRATEGY_PLANS_KEPT"),
		Build:   perceptron,
		Options: plan.Options{Compile: len(plans), Concurrency: 2},
	}.searchPlans(t.Context(), func(plan.Space) []plan.Plan { return plans })
	require.NoError(t, err)
	var text bytes.Buffer
	require.NoError(t, result.WriteText(&text))
	t.Log(text.String())
	var both []*plan.Candidate
	for _, c := range result.Candidates {
		if c.Verdict == plan.Compiled {
			both = append(both, c)
			t.Logf("%-90s probe %.3g s, whole %.3g s, memory %.3f", c.Plan, c.Probe.Seconds, c.Compiled.Seconds,
				float64(c.Probe.Bytes)/float64(c.Compiled.Bytes))
			// A finished program has some of its temporaries in the fast memory.
			assert.InEpsilon(t, c.Compiled.Bytes, c.Probe.Bytes, 0.8, "memory of %s", c.Plan)
		}
	}
	require.Greater(t, len(both), len(plans)*3/4, text.String())
	agree, pairs := 0, 0
	for i, a := range both { // which are in the order of the finished programs
		for _, b := range both[i+1:] {
			if pairs++; a.Probe.Seconds < b.Probe.Seconds {
				agree++
			} else if a.Probe.Seconds > b.Probe.Seconds {
				agree--
			}
		}
	}
	tau := float64(agree) / float64(pairs)
	best := both[0]
	slices.SortStableFunc(both, func(a, b *plan.Candidate) int { return cmp.Compare(a.Probe.Seconds, b.Probe.Seconds) })
	found := math.Inf(1)
	for _, c := range both[:3] {
		found = min(found, c.Compiled.Seconds/best.Compiled.Seconds)
	}
	fmt.Printf("%d plans probed and compiled whole: Kendall's tau %.3f; the best of all is number %d by probes, and "+
		"takes 1/%.3f of the best of the first three\n",
		len(both), tau, slices.Index(both, best)+1, found)
	if len(both) < 40 { // two that change places count for more
		assert.GreaterOrEqual(t, tau, 0.6)
	} else {
		assert.GreaterOrEqual(t, tau, 0.8)
	}
	assert.LessOrEqual(t, found, 1.1)
}

// A panic of the program is an error that names the plan, and the other plans are searched.
func TestAPanicOfTheProgramIsAnErrorOfThePlan(t *testing.T) {
	if !plugintest.TPUChild(t) {
		return
	}
	search := Search{Topologies: []string{"v5e:1x1"}, Worker: workerCommand, Options: plan.Options{Compile: -1}}
	search.Space.Settings = map[string][]string{"microbatches": {"1", "2"}}
	search.Build = func(strat *strategy.TPUStrategy, settings map[string]string) (Step, []any, error) {
		if settings["microbatches"] == "2" {
			panic("no parts")
		}
		return perceptron(strat, settings)
	}
	result, err := search.Run(t.Context())
	require.NoError(t, err)
	assert.Equal(t, plan.Probed, result.Candidates[0].Verdict)
	assert.Equal(t, plan.Rejected, result.Candidates[1].Verdict)
	search.Space.Settings["microbatches"] = []string{"2"}
	_, err = search.Run(t.Context())
	require.ErrorContains(t, err, "building the step for v5e:1x1: 1 x logical=1, microbatches=2: panic: no parts")
	assert.Equal(t, errkind.InternalError, errkind.KindOf(err))
}
