package report

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestJSONHoldsEverythingThatIsShown(t *testing.T) {
	data, err := json.Marshal(sample())
	require.NoError(t, err)
	again, err := Parse(data)
	require.NoError(t, err)
	assert.Equal(t, sample(), again)
}

func TestParseRefusesWhatIsNoReport(t *testing.T) {
	good, err := json.Marshal(sample())
	require.NoError(t, err)
	for name, text := range map[string]string{
		"nothing": "", "text": "hello", "another object": "{}", "a list": "[]", "a string": `"x"`,
		"another version":       strings.Replace(string(good), `"version":2`, `"version":7`, 1),
		"two of them":           string(good) + string(good),
		"cut":                   string(good[:len(good)/2]),
		"a wrong type":          strings.Replace(string(good), `"replicas":2`, `"replicas":"2"`, 1),
		"no replicas":           strings.Replace(string(good), `"replicas":2`, `"replicas":0`, 1),
		"uneven shapes":         strings.Replace(string(good), `"shard":[1024,1024]`, `"shard":[1024]`, 1),
		"negative shapes":       strings.Replace(string(good), `"shard":[1024,1024]`, `"shard":[-1,1024]`, 1),
		"wide shards":           strings.Replace(string(good), `"shard":[1024,1024]`, `"shard":[9999,1024]`, 1),
		"uneven starts":         strings.Replace(string(good), `"starts":[[0,0]`, `"starts":[[0]`, 1),
		"negative memory":       strings.Replace(string(good), `"arguments":4294967296`, `"arguments":-1`, 1),
		"a negative collective": strings.Replace(string(good), `"count":3`, `"count":-3`, 1),
		"a negative temporary":  strings.Replace(string(good), `"bytes":262144,"count":2`, `"bytes":-1,"count":2`, 1),
		"a negative time":       strings.Replace(string(good), `"start_seconds":0.048`, `"start_seconds":-1`, 1),
		"a value turned round":  strings.Replace(string(good), `"from":2,"to":2`, `"from":2,"to":1`, 1),
		"a negative peak":       strings.Replace(string(good), `"peak_at":2`, `"peak_at":-2`, 1),
		"a negative suggestion": strings.Replace(string(good), `"sent_bytes":4194304`, `"sent_bytes":-1`, 1),
		"a negative search":     strings.Replace(string(good), `"tried":6`, `"tried":-1`, 1),
		"a negative size":       strings.Replace(string(good), `"bytes_per_core":4194304`, `"bytes_per_core":-1`, 1),
	} {
		_, err := Parse([]byte(text))
		require.ErrorIs(t, err, ErrFormat, name)
	}
}

func TestAReportOfTheFirstVersionSaysSo(t *testing.T) {
	r, err := Parse([]byte(`{"version":1,"replicas":1,"logical_devices":1,"cost":{"flops_per_core":1,"seconds":-35.98}}`))
	require.NoError(t, err)
	assert.Equal(t, formatVersion, r.Version)
	assert.Contains(t, r.Notes[0], "counted each loop once")
	var b bytes.Buffer
	require.NoError(t, r.WriteText(&b))
	assert.NotContains(t, b.String(), "-35", "no negative time is shown")
}

func FuzzParse(f *testing.F) {
	good, err := json.Marshal(sample())
	require.NoError(f, err)
	f.Add(good)
	f.Add([]byte(
		`{"version":1,"replicas":1,"logical_devices":1,"tensors":[{"shape":[0,3],"shard":[0,3],"starts":[[0,0]]}]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		r, err := Parse(data)
		if err != nil {
			return
		}
		var b bytes.Buffer
		require.NoError(t, r.WriteText(&b))
		require.NoError(t, r.WriteHTML(&b))
		if r.Schedule != nil && r.Predicted != nil {
			require.NoError(t, r.WriteTrace(&b))
		}
	})
}
