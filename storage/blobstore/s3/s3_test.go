package s3_test

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/storage"
	"github.com/tpustrategy/tpustrategy/storage/blobstore"
	_ "github.com/tpustrategy/tpustrategy/storage/blobstore/s3"
)

// answering is a service that answers each request with one error of S3's form.
func answering(t *testing.T, status int, code string) string {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "application/xml")
		w.WriteHeader(status)
		_, _ = io.WriteString(w, "<Error><Code>"+code+"</Code><Message>"+code+"</Message></Error>")
	}))
	t.Cleanup(server.Close)
	t.Setenv("AWS_ACCESS_KEY_ID", "id")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "secret")
	t.Setenv("AWS_MAX_ATTEMPTS", "1")
	return "s3://bucket/run?region=us-east-1&use_path_style=true&patience=1ms&endpoint=" + server.URL
}

func TestWhatTheServiceAnswersHasAReason(t *testing.T) {
	for code, want := range map[string]struct {
		status int
		reason blobstore.Reason
		hint   string
	}{
		"NoSuchBucket":               {404, blobstore.NoBucket, "aws s3 mb"},
		"AccessDenied":               {403, blobstore.Denied, "s3:PutObject"},
		"SlowDown":                   {503, blobstore.Unavailable, "Options.Patience"},
		"ConditionalRequestConflict": {409, blobstore.Unavailable, ""},
	} {
		_, err := storage.Open(t.Context(), answering(t, want.status, code))
		var e *blobstore.Error
		require.True(t, errors.As(err, &e), "%v", err)
		assert.Equal(t, want.reason, e.Reason, code)
		assert.Contains(t, err.Error(), want.hint, code)
	}
	_, err := storage.Open(t.Context(), "s3://bucket/run?unheard=1")
	require.ErrorContains(t, err, "unheard")
}
