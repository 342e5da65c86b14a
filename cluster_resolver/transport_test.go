package clusterresolver

import (
	"errors"
	"net/http"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestMetadataServerThatStopsIsTemporaryFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newMetadataServer(v4Values())
		pipe := servePipe(t, s)
		n := 0
		client := NewMetadataClient(MetadataOptions{Transport: roundTrip(func(r *http.Request) (*http.Response, error) {
			if n++; n > 2 {
				return nil, errors.New("connection refused")
			}
			return pipe.RoundTrip(r)
		})})
		_, err := client.Read(t.Context())
		require.ErrorContains(t, err, "failed after 5 attempts")
		assert.False(t, errors.Is(err, ErrNotDetected), "it has answered before")
	})
}
