package generate

import (
	"fmt"
	"math"
	"testing"

	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/core/tensors"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/internal/test/strategytest"
	"github.com/tpustrategy/tpustrategy/strategy"
)

// TestThreefryGivesThePublishedNumbers compares with the known answers of Random123.
func TestThreefryGivesThePublishedNumbers(t *testing.T) {
	s := strategytest.New(t, 1, 1)
	f := s.Function(func(rc *strategy.ReplicaContext, in []*graph.Node) []*graph.Node {
		a, b := threefryBlock(in[0], in[1], in[2], in[3])
		return []*graph.Node{graph.Stack([]*graph.Node{a, b}, 0)}
	}, strategy.FunctionOptions{})
	const all = math.MaxUint32
	out, err := f.Run(t.Context(), []uint32{0, all, 0x13198a2e}, []uint32{0, all, 0x03707344},
		[]uint32{0, all, 0x243f6a88}, []uint32{0, all, 0x85a308d3})
	require.NoError(t, err)
	got, err := out[0].Local(t.Context(), 0)
	require.NoError(t, err)
	assert.Equal(t, [][]uint32{{0x6b200159, 0x1cb996fc, 0xc4923a9c}, {0x99ba4efe, 0xbb002be7, 0x483df7a0}}, got.Value())
}

// expected returns the probabilities with which a sampling draws the tokens of some logits.
func expected(logits []float32, s Sampling) []float64 {
	p := make([]float64, len(logits))
	for i, x := range logits {
		rank, above := 0, 0.0 // number of more likely tokens, and the sum of their probabilities
		for _, y := range logits {
			if y > x {
				rank++
			}
		}
		if s.TopK > 0 && rank >= s.TopK {
			continue
		}
		sum := 0.0
		for _, y := range logits {
			rankOf := 0
			for _, z := range logits {
				if z > y {
					rankOf++
				}
			}
			if s.TopK > 0 && rankOf >= s.TopK {
				continue
			}
			e := math.Exp(float64(y) / s.Temperature)
			sum += e
			if y > x {
				above += e
			}
		}
		if s.TopP > 0 && above >= s.TopP*sum {
			continue
		}
		p[i] = math.Exp(float64(x) / s.Temperature)
	}
	sum := 0.0
	for _, x := range p {
		sum += x
	}
	for i := range p {
		p[i] /= sum
	}
	return p
}

// TestSamplingDrawsWithTheProbabilitiesOfTheLogits draws many tokens of the same logits.
func TestSamplingDrawsWithTheProbabilitiesOfTheLogits(t *testing.T) {
	s := strategytest.New(t, 1, 1)
	logits := []float32{1, -0.5, 2.5, 0.25, 2, -3, float32(math.Inf(-1)), 1.5, 0.75, -1}
	const draws = 8000
	for _, c := range []Sampling{
		{}, {Temperature: 1}, {Temperature: 0.5, TopK: 4}, {Temperature: 1, TopP: 0.6}, {Temperature: 1.5, TopK: 6,
			TopP: 0.8},
	} {
		t.Run(fmt.Sprintf("%+v", c), func(t *testing.T) {
			f := s.Function(func(rc *strategy.ReplicaContext, in []*graph.Node) []*graph.Node {
				return []*graph.Node{c.variant().sampleTokens(in[0], in[1], in[2], in[3])}
			}, strategy.FunctionOptions{})
			var rows [][]float32
			var seeds [][]uint32
			var knobs [][]float32
			var places []int32
			for i := range uint32(draws) {
				rows, seeds, places = append(rows, logits), append(seeds, []uint32{i / 100, 17}), append(places, int32(i%100))
				knobs = append(knobs, []float32{float32(c.Temperature), float32(c.TopK), float32(c.TopP)})
			}
			rows[draws-1] = []float32{0, 1, 2, 3, float32(math.NaN()), 5, 6, 7, 8, 9}
			out, err := f.Run(t.Context(), rows, seeds, knobs, places)
			require.NoError(t, err)
			value, err := out[0].Local(t.Context(), 0)
			require.NoError(t, err)
			got := tensors.MustCopyFlatData[int32](value)
			assert.Equal(t, int32(-1), got[draws-1], "a row with a NaN")
			counts := make([]float64, len(logits))
			for _, token := range got[:draws-1] {
				counts[token]++
			}
			want := make([]float64, len(logits))
			if c.Temperature == 0 {
				want[2] = 1
			} else {
				want = expected(logits, c)
			}
			for token, p := range want {
				deviation := math.Sqrt(draws * p * (1 - p))
				assert.InDelta(t, draws*p, counts[token], 4.5*deviation+1, "token %d of %v", token, want)
				if p == 0 {
					assert.Zero(t, counts[token], "token %d is left out", token)
				}
			}
		})
	}
}
