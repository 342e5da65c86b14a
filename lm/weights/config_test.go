package weights_test

import (
	"encoding/json"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/lm/weights"
)

const config = `"model_type":"llama","num_hidden_layers":2,"hidden_size":8,"num_attention_heads":2,"intermediate_size":16,"vocab_size":32`

// TestAConfigOfNoModelIsRefused reads sizes with which a list of the tensors would fill the memory,
// and numbers that no model uses. Each entry replaces the entry with the same name.
func TestAConfigOfNoModelIsRefused(t *testing.T) {
	dir := t.TempDir()
	read := func(entries string) (weights.Config, error) {
		all := map[string]json.RawMessage{}
		require.NoError(t, json.Unmarshal([]byte("{"+config+entries+"}"), &all)) // the later of two equal keys wins
		data, err := json.Marshal(all)
		require.NoError(t, err)
		text(t, filepath.Join(dir, "config.json"), string(data))
		return weights.ReadConfig(dir)
	}
	c, err := read("")
	require.NoError(t, err)
	assert.Len(t, c.Tensors("F32"), 21)
	assert.Equal(t, []float64{1e-6, 10000}, []float64{c.Epsilon, c.RotaryBase})
	c, err = read(
		`,"rms_norm_eps":0,"rope_theta":1e9,"num_hidden_layers":126,"vocab_size":262144,"hidden_size":16384,"num_attention_heads":128,"num_key_value_heads":8`)
	require.NoError(t, err, "of the largest models")
	assert.Len(t, c.Tensors("F32"), 126*9+3)
	for entry, want := range map[string]string{
		`"num_hidden_layers":2147483648`:   "layers: 2147483648; at most 16384",
		`"num_hidden_layers":2147483647`:   "layers: 2147483647",
		`"vocab_size":2147483648`:          "vocabulary: 2147483648; at most 16777216",
		`"hidden_size":2147483648`:         "width: 2147483648",
		`"num_attention_heads":1073741824`: "heads: 1073741824",
		`"head_dim":1073741824`:            "size of heads: 1073741824",
		`"intermediate_size":2147483648`:   "hidden width: 2147483648",
		`"num_hidden_layers":-1`:           "layers: -1; at least 1",
		`"rms_norm_eps":-1e-5`:             "rms_norm_eps: -1e-05",
		`"rms_norm_eps":2`:                 "rms_norm_eps: 2",
		`"rope_theta":-10000`:              "rope_theta: -10000",
		`"rope_theta":0.5`:                 "rope_theta: 0.5",
		`"rope_theta":1e300`:               "rope_theta: 1e+300",
	} {
		_, err := read("," + entry)
		if assert.Error(t, err, entry) {
			assert.ErrorContains(t, err, want)
			assert.Equal(t, errkind.ValueError, errkind.KindOf(err))
		}
	}
	for _, entry := range []string{`"rms_norm_eps":1e999`, `"rope_theta":"NaN"`} {
		_, err := read("," + entry)
		assert.Error(t, err, entry)
	}
	// The largest valid config is also cheap.
	c, err = read(`,"num_hidden_layers":16384`)
	require.NoError(t, err)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	assert.Len(t, c.Tensors("F32"), 16384*9+3)
	runtime.ReadMemStats(&after)
	assert.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(256<<20))
}
