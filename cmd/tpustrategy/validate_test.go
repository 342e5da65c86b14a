package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/aot/plan"
	"github.com/tpustrategy/tpustrategy/internal/test/plugintest"
	"github.com/tpustrategy/tpustrategy/internal/units"
	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/report/published"
)

// MaxText's 32B and 64B on v5e-256, with all variables sharded and layers rematerialized. No
// constant of the prediction is fitted to a step.
func TestAOTLargePublishedStepsArePredicted(t *testing.T) {
	plugintest.Large(t)
	executable, err := os.Executable()
	require.NoError(t, err)
	var stdout, stderr bytes.Buffer
	a := &app{stdout: &stdout, stderr: &stderr, stdin: strings.NewReader(""), getenv: os.Getenv, environ: os.Environ(),
		executable: executable, argv0: "tpustrategy"}
	code := a.run(t.Context(), []string{"validate", "--row", "2,3", "--cache", "none", "--json", "--plugin",
		plugintest.Libtpu(t)})
	require.Zero(t, code, stderr.String())
	var all []prediction
	require.NoError(t, json.Unmarshal(stdout.Bytes(), &all))
	require.Len(t, all, 2)
	for _, v := range all {
		fmt.Printf("row %d, %s: published %s, predicted %s, %+.1f %%, and %s without a kernel\n",
			v.Row, v.Name, units.Seconds(v.Published), units.Seconds(v.Predicted), 100*v.relativeError(),
			units.Seconds(v.WithoutKernel))
		assert.InDelta(t, 0, v.relativeError(), 0.15, v.Name)
		assert.Greater(t, v.WithoutKernel, 1.1*v.Predicted, v.Name)
		assert.Less(t, v.Bytes, v.Limit, "it was measured: it fits")
	}
}

// The search finds in ten minutes per published step a plan whose predicted time is at most 1.02
// times that of the configuration tuned by hand.
func TestAOTLargePlansOfPublishedSteps(t *testing.T) {
	plugintest.Large(t)
	if !plugintest.TPUChild(t) {
		return
	}
	for _, s := range published.Steps() {
		if s.Row > 12 || s.Lacks != "" {
			continue
		}
		t.Run(s.Name+" "+s.Slice, func(t *testing.T) {
			_, search := newStepSearch(s, true)
			search.Worker, search.CacheDir = workerCommand, os.Getenv("TPUSTRATEGY_PLANS_KEPT")
			search.Space.Logical, search.Space.States = []int{1, 2, 4, 8, 16}, []logical.StateSharding{logical.ShardGradients,
				logical.ShardParameters}
			search.Space.Settings = map[string][]string{"remat": {"full", "products"}, "accumulate": {"1", "2"}}
			search.Options = plan.Options{Compile: -1, TimeLimit: 10 * time.Minute, Concurrency: 2}
			result, err := search.Run(t.Context())
			require.NoError(t, err)
			var byHand *plan.Candidate
			for _, c := range result.Candidates {
				if c.Plan.Logical() == s.Model && c.Plan.State() == logical.ShardParameters &&
					c.Plan.Settings["remat"] == s.Remat && c.Plan.Settings["accumulate"] == "1" {
					byHand = c
				}
			}
			require.NotNil(t, byHand)
			require.NotNil(t, byHand.Probe, "%s: %s", byHand.Verdict, byHand.Reason)
			best, err := result.Best()
			require.NoError(t, err)
			fmt.Printf("row %d, %s on %s: by hand %s (%s, memory %s of %s), best of %d in %.0f s %s, %.3f times: %s\n", s.Row,
				s.Name, s.Slice,
				units.Seconds(byHand.Probe.Seconds), byHand.Verdict, units.Bytes(byHand.Probe.Bytes),
				units.Bytes(byHand.Probe.Limit),
				len(result.Candidates), result.Seconds, units.Seconds(best.Probe.Seconds), best.Probe.Seconds/byHand.Probe.Seconds,
				best.Plan)
			assert.LessOrEqual(t, best.Probe.Seconds, 1.02*byHand.Probe.Seconds)
		})
	}
}
