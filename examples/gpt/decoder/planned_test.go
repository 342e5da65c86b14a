package decoder_test

import (
	"fmt"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/gomlx/gomlx/ml/model"
	"github.com/gomlx/gomlx/ml/train/optimizer"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/examples/gpt/decoder"
	"github.com/tpustrategy/tpustrategy/internal/ahead"
	"github.com/tpustrategy/tpustrategy/internal/test/plugintest"
	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/pjrt/worker"
	"github.com/tpustrategy/tpustrategy/plan"
	"github.com/tpustrategy/tpustrategy/precision"
	"github.com/tpustrategy/tpustrategy/remat"
	"github.com/tpustrategy/tpustrategy/report"
	"github.com/tpustrategy/tpustrategy/report/published"
	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/strategy/train"
)

var workerCommand []string

func TestMain(m *testing.M) {
	workerCommand = worker.Main()
	os.Exit(m.Run())
}

// The plans that are found for the published 22B on 64 chips of v4 and 32B on 64 of v5p, in ten minutes
// each, are predicted at most 1.02 times the configurations that were tuned by hand where these fit. They
// were tuned with a flash attention kernel, without which they do not; what fits without it is then at
// most 1.15 times as slow.
func TestAOTLargePlansOfPublishedSteps(t *testing.T) {
	plugintest.Large(t)
	if !plugintest.TPUChild(t) {
		return
	}
	for _, s := range published.Steps() {
		if s.Row != 5 && s.Row != 11 {
			continue
		}
		t.Run(s.Name, func(t *testing.T) { planned(t, s) })
	}
}

func planned(t *testing.T, s published.Step) {
	policy, err := precision.ParsePolicy("bf16")
	require.NoError(t, err)
	result, err := ahead.Search{
		Topologies: []string{s.Slice}, Worker: workerCommand, Folder: os.Getenv("TPUSTRATEGY_PLANS_KEPT"),
		Space: plan.Space{
			Logical: []int{1, 2, 4, 8}, States: []logical.StateSharding{logical.ShardGradients, logical.ShardParameters}, Rules: []plan.RuleSet{{Rules: decoder.Rules()}},
			Settings: map[string][]string{"remat": {"full", "products"}, "accumulate": {"1", "2"}},
		},
		Options: plan.Options{Whole: -1, Within: 10 * time.Minute, Parallel: 2},
		Build: func(strat *strategy.TPUStrategy, settings map[string]string) (ahead.Step, []any, error) {
			c := decoder.Config{Layers: s.Layers, Width: s.Width, Heads: s.Heads, KeyHeads: s.KeyHeads, Hidden: s.Hidden, Vocabulary: s.Vocabulary, Sequence: s.Sequence,
				Batch: s.Rows * s.Chips, Theta: 1e4, Epsilon: 1e-6}
			var err error
			if c.Keep, err = remat.ParsePolicy(settings["remat"]); err != nil {
				return nil, nil, err
			}
			microbatches, err := strconv.Atoi(settings["accumulate"])
			if err != nil {
				return nil, nil, err
			}
			step, err := train.New(strat, model.NewStore(), optimizer.Adam().Done(), c.Loss, train.Options{Precision: policy, Accumulate: microbatches})
			return step, []any{c.Windows()}, err
		},
	}.Run(t.Context())
	require.NoError(t, err)
	var byHand *plan.Candidate
	for _, c := range result.Candidates {
		if c.Plan.Logical() == s.Model && c.Plan.State() == logical.ShardParameters && c.Plan.Settings["remat"] == s.Remat && c.Plan.Settings["accumulate"] == "1" {
			byHand = c
		}
	}
	require.NoError(t, result.WriteText(os.Stdout))
	require.NotNil(t, byHand)
	require.NotNil(t, byHand.Probe, "%s: %s", byHand.Verdict, byHand.Reason)
	best, err := result.Best()
	require.NoError(t, err)
	fmt.Printf("row %d, %s on %s: by hand %s (%s, memory %s of %s), best %s, %.3f times: %s\n", s.Row, s.Name, s.Slice, report.Seconds(byHand.Probe.Seconds), byHand.Verdict,
		report.Bytes(byHand.Probe.Bytes), report.Bytes(byHand.Probe.Limit), report.Seconds(best.Probe.Seconds), best.Probe.Seconds/byHand.Probe.Seconds, best.Plan)
	most := 1.15
	if byHand.Probe.Bytes <= byHand.Probe.Limit {
		most = 1.02
	}
	assert.LessOrEqual(t, best.Probe.Seconds, most*byHand.Probe.Seconds)
}
