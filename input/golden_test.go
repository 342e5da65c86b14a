package input_test

import (
	"encoding/json"
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/internal/test/conformance/inputcases"
)

func TestGoldens(t *testing.T) {
	data, err := os.ReadFile("../testdata/goldens/strategy_semantics.json")
	require.NoError(t, err)
	var file struct{ Cases []json.RawMessage }
	require.NoError(t, json.Unmarshal(data, &file))
	ran := map[string]int{}
	for _, raw := range file.Cases {
		var c struct{ Section, Name, Strategy string }
		require.NoError(t, json.Unmarshal(raw, &c))
		switch c.Section {
		case "input", "input_from_function", "rebatch", "auto_shard":
			ran[c.Section]++
			t.Run(c.Section+"/"+c.Strategy+"/"+c.Name, func(t *testing.T) { inputcases.Run(t, raw) })
		}
	}
	for _, section := range []string{"input", "input_from_function", "rebatch", "auto_shard"} {
		assert.NotZero(t, ran[section], "no case of section %s", section)
	}
}
