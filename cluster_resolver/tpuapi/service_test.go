package tpuapi

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/api/option"

	clusterresolver "github.com/tpustrategy/tpustrategy/cluster_resolver"
)

const anyNode = "projects/p/locations/z/nodes/n"

// withToken is a transport that adds a token to every request, like transports with credentials.
type withToken struct{}

func (withToken) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer secret")
	return http.DefaultTransport.RoundTrip(r)
}

func TestRedirectToOtherHostDoesNotSendToken(t *testing.T) {
	asked := 0
	elsewhere := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked++
		fmt.Fprint(w, node)
	}))
	defer elsewhere.Close()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		assert.Equal(t, "Bearer secret", r.Header.Get("Authorization"))
		http.Redirect(w, r, elsewhere.URL+r.URL.Path, http.StatusTemporaryRedirect)
	}))
	defer s.Close()
	client, err := New(t.Context(), option.WithEndpoint(s.URL),
		option.WithHTTPClient(&http.Client{Transport: withToken{}}))
	require.NoError(t, err)
	_, err = client.Node(t.Context(), anyNode)
	var failed *clusterresolver.APIError
	require.ErrorAs(t, err, &failed)
	assert.ErrorIs(t, err, clusterresolver.ErrRedirected)
	assert.False(t, failed.Temporary(), "another try would be sent on too")
	assert.Zero(t, asked)
}

func TestResponseSizeIsLimited(t *testing.T) {
	endpoint := `{"ipAddress":"10.0.0.1"}`
	for name, write := range map[string]func(w http.ResponseWriter){
		"without end": func(w http.ResponseWriter) {
			fmt.Fprint(w, `{"name":"`)
			for range 1 << 12 {
				if _, err := fmt.Fprint(w, strings.Repeat("x", 1<<16)); err != nil {
					return
				}
			}
		},
		"a million workers": func(w http.ResponseWriter) {
			fmt.Fprint(w, `{"networkEndpoints":[`+strings.Repeat(endpoint+",", 1_000_000)+endpoint+`]}`)
		},
		"more than any slice's": func(w http.ResponseWriter) {
			fmt.Fprint(w, `{"networkEndpoints":[`+strings.Repeat("{},", maxEndpoints)+`{}]}`)
		},
	} {
		client := start(t, &server{fault: func(w http.ResponseWriter, _ *http.Request, _ int) bool { write(w); return true }})
		begun := time.Now()
		_, err := client.Node(t.Context(), anyNode)
		require.ErrorIs(t, err, clusterresolver.ErrTooLarge, name)
		assert.Less(t, len(err.Error()), 2000, name)
		assert.Less(t, time.Since(begun), 20*time.Second, name)
	}
	long := start(t, &server{fault: func(w http.ResponseWriter, _ *http.Request, _ int) bool {
		fail(w, 403, "PERMISSION_DENIED", strings.Repeat("no ", 100_000))
		return true
	}})
	_, err := long.Node(t.Context(), anyNode)
	require.Error(t, err)
	assert.Less(t, len(err.Error()), 2000)
	sums := start(t,
		&server{resources: map[string]string{"projects/p/locations/z/queuedResources/q": `{"state":{"state":"ACTIVE"},"tpu":{"nodeSpec":[` +
			strings.TrimSuffix(strings.Repeat(`{"multisliceParams":{"nodeCount":4000}},`, 1000), ",") + `]}}`}})
	_, err = sums.QueuedResource(t.Context(), "projects/p/locations/z/queuedResources/q")
	require.ErrorIs(t, err, clusterresolver.ErrTooLarge)
}

func TestServiceUsesConfiguredEndpoint(t *testing.T) {
	client, err := New(t.Context(), option.WithoutAuthentication())
	require.NoError(t, err)
	assert.Equal(t, "https://tpu.googleapis.com/", client.service.BasePath)
}
