package clusterresolver

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestMetadataClientRejectsRedirectToOtherHost(t *testing.T) {
	var asked atomic.Int32
	for name, google := range map[string]bool{"a server that calls itself the metadata's": true, "a portal": false} {
		client := NewMetadataClient(MetadataOptions{Transport: serve(t, http.HandlerFunc(func(w http.ResponseWriter,
			r *http.Request) {
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

func TestSameHostAllowsRedirectWithinHost(t *testing.T) {
	hits := 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if hits++; r.URL.Path == "/again" {
			http.Redirect(w, r, "/again", http.StatusFound)
		} else if r.URL.Path != "/there" {
			http.Redirect(w, r, "/there", http.StatusFound)
		}
	}))
	defer server.Close()
	client := &http.Client{CheckRedirect: CheckSameHost}
	res, err := client.Get(server.URL)
	require.NoError(t, err)
	require.NoError(t, res.Body.Close())
	assert.Equal(t, 2, hits)
	_, err = client.Get(server.URL + "/again")
	assert.ErrorContains(t, err, "stopped after 3 redirects")
}
