package clusterresolver

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func mustSpec(t *testing.T, jobs map[string][]string) ClusterSpec {
	t.Helper()
	s, err := NewClusterSpec(jobs)
	require.NoError(t, err)
	return s
}

func TestClusterSpecLooksUpByJobAndIndex(t *testing.T) {
	s := mustSpec(t, map[string][]string{"worker": {"w0:1", "w1:1"}, "ps": {"p0:1"}})
	assert.Equal(t, []string{"ps", "worker"}, s.Jobs())
	assert.Equal(t, 2, s.NumTasks("worker"))
	assert.Equal(t, 0, s.NumTasks("chief"))
	assert.Equal(t, 3, s.Len())
	a, err := s.Address("worker", 1)
	require.NoError(t, err)
	assert.Equal(t, "w1:1", a)

	// TensorFlow's texts name job and index the same way.
	_, err = s.Address("worker", 9)
	var le *LookupError
	require.ErrorAs(t, err, &le)
	assert.Contains(t, err.Error(), `no task with index 9 in job "worker"`)
	assert.Equal(t, []string{"0", "1"}, le.Have)
	_, err = s.Address("master", 0)
	assert.ErrorContains(t, err, `no such job in cluster: "master" (jobs: [ps, worker])`)
	_, err = s.Tasks("chief")
	assert.ErrorAs(t, err, &le)
	_, err = s.Address("worker", -1)
	assert.ErrorContains(t, err, "no task with index -1")
}

func TestClusterSpecKeepsNothingOfItsInput(t *testing.T) {
	in := map[string][]string{"worker": {"a:1"}}
	s := mustSpec(t, in)
	in["worker"][0] = "changed:1"
	tasks, err := s.Tasks("worker")
	require.NoError(t, err)
	tasks[0].Address = "changed:1"
	a, _ := s.Address("worker", 0)
	assert.Equal(t, "a:1", a)
}

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

func TestClusterSpecJSONRefusesWhatWouldLoseTasks(t *testing.T) {
	for text, want := range map[string]string{
		`{"worker":["a:1"],"worker":["b:1"]}`: "given twice",
		`{"worker":{"0":"a:1","0":"b:1"}}`:    "given twice",
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

func TestMergeSpecs(t *testing.T) {
	sparse := func(m map[string]map[int]string) ClusterSpec {
		s, err := NewSparseClusterSpec(m)
		require.NoError(t, err)
		return s
	}
	a := mustSpec(t, map[string][]string{"worker": {"a:1", "b:1"}})
	b := mustSpec(t, map[string][]string{"worker": {"c:1"}, "ps": {"p:1"}})
	got, err := MergeSpecs(a, b)
	require.NoError(t, err)
	assert.Equal(t, `{"ps":["p:1"],"worker":["a:1","b:1","c:1"]}`, got.String())

	got, err = MergeSpecs(a, sparse(map[string]map[int]string{"worker": {5: "f:1"}}))
	require.NoError(t, err)
	assert.Equal(t, `{"worker":{"0":"a:1","1":"b:1","5":"f:1"}}`, got.String())

	_, err = MergeSpecs(sparse(map[string]map[int]string{"worker": {1: "x:1"}}), a)
	assert.ErrorContains(t, err, "task 1 is given twice")
}
