package clusterresolver

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestClusterSpecJSONRoundTripsDenseAndSparse(t *testing.T) {
	for name, text := range map[string]string{
		"empty":  `{}`,
		"dense":  `{"ps":["p:1"],"worker":["a:1","b:1"]}`,
		"sparse": `{"worker":{"1":"b:1","7":"c:1"}}`,
		"no job": `{"worker":[]}`,
	} {
		t.Run(name, func(t *testing.T) {
			var s ClusterSpec
			require.NoError(t, json.Unmarshal([]byte(text), &s))
			out, err := json.Marshal(s)
			require.NoError(t, err)
			assert.Equal(t, text, string(out))
			var again ClusterSpec
			require.NoError(t, json.Unmarshal(out, &again))
			assert.True(t, s.Equal(again))
		})
	}
}

func TestClusterSpecJSONRejectsDuplicates(t *testing.T) {
	for text, want := range map[string]string{
		`{"worker":["a:1"],"worker":["b:1"]}`: "duplicate key",
		`{"worker":{"0":"a:1","0":"b:1"}}`:    "duplicate key",
		`{"worker":{"00":"a:1"}}`:             "not a plain number",
		`{"worker":{"-1":"a:1"}}`:             "not a plain number",
		`{"worker":{"x":"a:1"}}`:              "not a plain number",
		`{"worker":{"0":7}}`:                  "not a string",
		`{"worker":[""]}`:                     "empty address",
		`{"":["a:1"]}`:                        "empty job name",
		`{"worker":"a:1"}`:                    "not a JSON object",
		`{"worker":[1]}`:                      "not a list of addresses",
		`[]`:                                  "not a JSON object",
		`7`:                                   "not a JSON object",
	} {
		t.Run(text, func(t *testing.T) {
			_, err := parseSpec([]byte(text))
			var pe *ParseError
			require.ErrorAs(t, err, &pe)
			assert.ErrorContains(t, err, want)
		})
	}
}
