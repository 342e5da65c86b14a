package clusterresolver

import (
	"context"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func TestRetryUsesSleepOfCaller(t *testing.T) {
	s := newMetadataServer(v4Values())
	s.fault = func(w http.ResponseWriter, _ *http.Request, n int) bool {
		if n < 4 {
			answer(500, "")(w)
		}
		return n < 4
	}
	var pauses []time.Duration
	client := NewMetadataClient(MetadataOptions{Transport: serve(t, s), Retry: Retry{
		Attempts: 10, Base: time.Hour, Max: 3 * time.Hour,
		Sleep: func(_ context.Context, d time.Duration) error { pauses = append(pauses, d); return nil },
	}})
	_, err := client.Get(t.Context(), "instance/zone")
	require.NoError(t, err)
	require.Len(t, pauses, 3)
	for i, full := range []time.Duration{time.Hour, 2 * time.Hour, 3 * time.Hour} {
		assert.LessOrEqual(t, pauses[i], full)
		assert.GreaterOrEqual(t, pauses[i], full/2)
	}
}
