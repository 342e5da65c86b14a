package clusterresolver

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/internal/test/hangtest"
)

// longest is the maximum length of an error in these tests.
const longest = 2000

func TestMetadataErrorTruncatesServerMessage(t *testing.T) {
	client := NewMetadataClient(MetadataOptions{Transport: serve(t, http.HandlerFunc(func(w http.ResponseWriter,
		_ *http.Request) {
		w.Header().Set("Metadata-Flavor", "Google")
		w.WriteHeader(http.StatusForbidden)
		fmt.Fprint(w, strings.Repeat("no ", 300_000))
	}))})
	_, err := client.Get(t.Context(), "instance/zone")
	require.Error(t, err)
	assert.Less(t, len(err.Error()), longest)
}

func TestClusterSizeIsLimited(t *testing.T) {
	million := make([]string, 1_000_000)
	for i := range million {
		million[i] = fmt.Sprintf("h%d:1", i)
	}
	list, err := json.Marshal(million)
	require.NoError(t, err)
	sparse := strings.Builder{}
	for i := range maxWorkers + 1 {
		fmt.Fprintf(&sparse, `"%d":"h:1",`, 2*i)
	}
	many := strings.Builder{}
	for job := range 5 {
		fmt.Fprintf(&many, `"job%d":[%s"h:1"],`, job, strings.Repeat(`"h:1",`, maxWorkers-1))
	}
	for name, text := range map[string]string{
		"a list":       `{"worker":` + string(list) + `}`,
		"by index":     `{"worker":{` + strings.TrimSuffix(sparse.String(), ",") + `}}`,
		"all together": `{` + strings.TrimSuffix(many.String(), ",") + `}`,
		"a long text":  `{"worker":["` + strings.Repeat("x", maxSpec) + `"]}`,
		"a long name":  `{"` + strings.Repeat("x", 100_000) + `":[""]}`,
		"no addresses": `{"worker":[` + strings.Repeat("1,", 100_000) + `1]}`,
	} {
		var spec ClusterSpec
		var err error
		took := hangtest.Processor(t, func() { err = json.Unmarshal([]byte(text), &spec) })
		var bad *ParseError
		require.ErrorAs(t, err, &bad, name)
		assert.Less(t, len(err.Error()), longest, name)
		assert.Less(t, took, 10*time.Second, name)
	}
	_, err = NewClusterSpec(map[string][]string{"worker": million})
	assert.ErrorContains(t, err, "more than 65536 tasks")
	whole := make([]string, maxWorkers)
	copy(whole, million)
	spec, err := NewClusterSpec(map[string][]string{"worker": whole})
	require.NoError(t, err)
	assert.Equal(t, maxWorkers, spec.NumTasks("worker"))
}

// listing is an API whose node and queued resource have the given number of entries.
type listing struct{ endpoints, nodes int }

func (l listing) Node(_ context.Context, name string) (Node, error) {
	return Node{Name: name, State: "READY", AcceleratorType: "v4-8", Endpoints: make([]NodeEndpoint, l.endpoints)}, nil
}

func (l listing) QueuedResource(_ context.Context, name string) (QueuedResource, error) {
	return QueuedResource{Name: name, State: "ACTIVE", Nodes: make([]string, l.nodes)}, nil
}

func TestAPIResponseSizeIsLimited(t *testing.T) {
	_, err := CloudTPU{TPU: "n", Project: "p", Zone: "z", API: listing{endpoints: maxWorkers + 1}}.Resolve(t.Context())
	assert.ErrorContains(t, err, "more than 65536")
	_, err = CloudTPU{QueuedResource: "q", Project: "p", Zone: "z",
		API: listing{nodes: maxSlices + 1}}.Resolve(t.Context())
	assert.ErrorContains(t, err, "more than 4096")
}
