package clusterresolver

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// longest is the most that any error here may say.
const longest = 2000

func TestTheMetadataClientFollowsNoRedirectToAnotherHost(t *testing.T) {
	var asked atomic.Int32
	for name, google := range map[string]bool{"a server that calls itself the metadata's": true, "a portal": false} {
		client := NewMetadataClient(MetadataOptions{Transport: serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Metadata-Flavor", "Google")
			if strings.HasPrefix(r.Host, "elsewhere.example") {
				asked.Add(1)
				fmt.Fprint(w, "v4-8")
				return
			}
			if !google {
				w.Header().Del("Metadata-Flavor")
			}
			http.Redirect(w, r, "http://elsewhere.example/"+strings.Repeat("x", 1<<10), http.StatusFound)
		}))})
		_, err := client.Get(t.Context(), "instance/attributes/accelerator-type")
		require.Error(t, err, name)
		assert.Zero(t, asked.Load(), name)
		assert.Less(t, len(err.Error()), longest)
		if google {
			assert.ErrorIs(t, err, ErrRedirected)
		} else {
			assert.ErrorIs(t, err, ErrNotDetected, "it is no metadata server")
		}
	}
}

func TestAMetadataErrorRepeatsLittleOfWhatTheServerSays(t *testing.T) {
	client := NewMetadataClient(MetadataOptions{Transport: serve(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Metadata-Flavor", "Google")
		w.WriteHeader(http.StatusForbidden)
		fmt.Fprint(w, strings.Repeat("no ", 300_000))
	}))})
	_, err := client.Get(t.Context(), "instance/zone")
	require.Error(t, err)
	assert.Less(t, len(err.Error()), longest)
}

func TestClustersAreBounded(t *testing.T) {
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
		start := time.Now()
		err := json.Unmarshal([]byte(text), &spec)
		var bad *ParseError
		require.ErrorAs(t, err, &bad, name)
		assert.Less(t, len(err.Error()), longest, name)
		assert.Less(t, time.Since(start), 10*time.Second, name)
	}
	_, err = NewClusterSpec(map[string][]string{"worker": million})
	assert.ErrorContains(t, err, "more than 65536 tasks")
	whole := make([]string, maxWorkers)
	copy(whole, million)
	spec, err := NewClusterSpec(map[string][]string{"worker": whole})
	require.NoError(t, err)
	assert.Equal(t, maxWorkers, spec.NumTasks("worker"))
}

func TestATopologyOfABillionChipsIsNone(t *testing.T) {
	_, err := parseTopology("TPU_TOPOLOGY", "1000x1000x1000")
	assert.ErrorContains(t, err, "not a topology")
	_, err = ParseBounds("TPU_PROCESS_BOUNDS", "65536,65536,65536")
	assert.Error(t, err)
	findings := Check(readEnv(t, "TPU_TOPOLOGY", strings.Repeat("9", 100_000), "TPU_ACCELERATOR_TYPE", strings.Repeat("v", 100_000)), Metadata{})
	require.NotEmpty(t, findings)
	for _, f := range findings {
		assert.Less(t, len(f.String()), longest)
	}
}

// listing is an API whose node and queued resource list as much as it is told.
type listing struct{ endpoints, nodes int }

func (l listing) Node(_ context.Context, name string) (Node, error) {
	return Node{Name: name, State: "READY", AcceleratorType: "v4-8", Endpoints: make([]NodeEndpoint, l.endpoints)}, nil
}

func (l listing) QueuedResource(_ context.Context, name string) (QueuedResource, error) {
	return QueuedResource{Name: name, State: "ACTIVE", Nodes: make([]string, l.nodes)}, nil
}

func TestWhatTheAPIListsIsBounded(t *testing.T) {
	_, err := CloudTPU{TPU: "n", Project: "p", Zone: "z", API: listing{endpoints: maxWorkers + 1}}.Resolve(t.Context())
	assert.ErrorContains(t, err, "more than 65536")
	_, err = CloudTPU{QueuedResource: "q", Project: "p", Zone: "z", API: listing{nodes: maxSlices + 1}}.Resolve(t.Context())
	assert.ErrorContains(t, err, "more than 4096")
}

func TestErrorsOfAServiceAreCut(t *testing.T) {
	long := strings.Repeat("word ", 100_000)
	for _, err := range []error{
		&APIError{Op: "nodes.get", Name: long, Code: 500, Message: long}, &APIError{Op: "nodes.get", Err: fmt.Errorf("%s", long)},
		&NotReadyError{Name: long, State: long, Health: long, Detail: long}, &LookupError{Job: long, NoJob: true, Have: []string{long}},
		&MetadataError{Key: "instance/zone", Err: fmt.Errorf("%s", long)}, &NotDetectedError{Resolver: "cloud_tpu", Reason: long},
		parseError("TF_CONFIG", long, "not JSON", ""),
	} {
		assert.Less(t, len(err.Error()), longest, "%T", err)
	}
}

func TestSameHostFollowsWithinTheHost(t *testing.T) {
	hits := 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if hits++; r.URL.Path == "/again" {
			http.Redirect(w, r, "/again", http.StatusFound)
		} else if r.URL.Path != "/there" {
			http.Redirect(w, r, "/there", http.StatusFound)
		}
	}))
	defer server.Close()
	client := &http.Client{CheckRedirect: SameHost}
	res, err := client.Get(server.URL)
	require.NoError(t, err)
	require.NoError(t, res.Body.Close())
	assert.Equal(t, 2, hits)
	_, err = client.Get(server.URL + "/again")
	assert.ErrorContains(t, err, "stopped after 3 redirects")
}
