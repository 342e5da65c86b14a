package report

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestASummaryHasTheFiguresByTheirNames(t *testing.T) {
	r := sample()
	r.Parameters, r.TextBytes = 7, 900
	r.CollectiveDTypes = []CollectiveDType{
		{Kind: "all-reduce", Axis: "replica", GroupSize: 2, DType: "f32", Bytes: 100, Count: 3},
		{Kind: "all-reduce", Axis: "replica", GroupSize: 2, DType: "bf16", Bytes: 20, Count: 1},
		{Kind: "all-reduce", Axis: "replica", GroupSize: 4, DType: "f32", Bytes: 10, Count: 2},
	}
	s := r.Summary()
	assert.Equal(t, []SummaryCollective{
		{Axis: "replica", Kind: "all-reduce", DType: "f32", Count: 5, Bytes: 110},
		{Axis: "replica", Kind: "all-reduce", DType: "bf16", Count: 1, Bytes: 20},
	}, s.Collectives)
	data, err := json.Marshal(s)
	require.NoError(t, err)
	var names map[string]any
	require.NoError(t, json.Unmarshal(data, &names))
	for name, want := range map[string]any{"parameters": 7.0, "text_bytes": 900.0, "lower_seconds": 0.002,
		"compile_seconds": 1.5, "flops": 2e12} {
		assert.Equal(t, want, names[name], name)
	}
	assert.Equal(t, float64(6<<30), names["memory"].(map[string]any)["temporaries"])
	assert.Len(t, names["collectives"], 2)
	assert.Equal(t, 0.05, names["predicted_seconds"])
	assert.Len(t, names, 8)

	data, err = json.Marshal(new(Report).Summary())
	require.NoError(t, err)
	assert.Contains(t, string(data), `"collectives":[]`)
}
