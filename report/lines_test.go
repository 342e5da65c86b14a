package report

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/tpustrategy/tpustrategy/lowering/ir"
)

func TestANameSaysWhichStatementItIsOf(t *testing.T) {
	all := []*ir.Origin{{Line: 1}, {Line: 2}, {Line: 3}}
	for name, want := range map[string]*ir.Origin{
		"add_s1": all[1], "call_s0/while_s2/dot_general_s1": all[1], "call_s0/reduce_s2.clone": all[2], "call_s0/add": all[0],
		"": nil, "add": nil, "call.11/call.2/dot.8": nil, "add_s3": nil, "add_s-1": nil, "add_s99999999999999999999": nil, "add_s1e9": nil, "_s": nil,
		"my_s1x": nil,
	} {
		assert.Same(t, want, originOf(name, all), name)
	}
}

func TestLinesAddUp(t *testing.T) {
	r := sample()
	lines := r.ByLine()
	assert.Len(t, lines, 3)
	net := lines[0]
	assert.Equal(t, "model/net.go:41", net.String())
	assert.InDelta(t, 0.032, net.Seconds(), 1e-12)
	assert.Equal(t, int64(5<<30), net.PeakBytes)
	assert.Equal(t, "up", net.Layer)
	assert.Empty(t, net.Pass, "forward and backward")
	assert.Equal(t, "main.go:12", lines[1].String())
	assert.Equal(t, "not known", lines[2].String())
	all := 0.0
	for _, l := range r.Lines {
		all += l.Seconds()
	}
	assert.InDelta(t, r.Predicted.Seconds, all, 1e-12)
	assert.Equal(t, sample(), r, "the report is as it was")
}
