package azure_test

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/storage"
	"github.com/tpustrategy/tpustrategy/storage/blobstore"
	_ "github.com/tpustrategy/tpustrategy/storage/blobstore/azure"
)

func TestWhatTheServiceAnswersHasAReason(t *testing.T) {
	status, code := 0, ""
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("x-ms-error-code", code)
		w.WriteHeader(status)
	}))
	defer server.Close()
	t.Setenv("AZURE_STORAGE_ACCOUNT", "account")
	t.Setenv("AZURE_STORAGE_KEY", "a2V5")
	url := "azblob://container/run?protocol=http&localemu=true&patience=1ms&domain=" + strings.TrimPrefix(server.URL,
		"http://")
	for c, want := range map[string]struct {
		status int
		reason blobstore.Reason
		hint   string
	}{
		"ContainerNotFound":    {404, blobstore.BucketNotFound, "az storage container create"},
		"AuthorizationFailure": {403, blobstore.PermissionDenied, "Storage Blob Data Contributor"},
	} {
		status, code = want.status, c
		_, err := storage.Open(t.Context(), url)
		var e *blobstore.Error
		require.True(t, errors.As(err, &e), "%v", err)
		assert.Equal(t, want.reason, e.Reason, c)
		assert.Contains(t, err.Error(), want.hint, c)
	}
}

// TestAListingThatIsNoneIsAnError checks that a malformed listing is an error, and neither a panic
// of the driver nor an empty result.
func TestAListingThatIsNoneIsAnError(t *testing.T) {
	const head, tail = `<?xml version="1.0" encoding="utf-8"?><EnumerationResults ContainerName="container"><Blobs>`,
		`</Blobs><NextMarker/></EnumerationResults>`
	body := head + tail
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/xml")
		_, _ = io.WriteString(w, body)
	}))
	defer server.Close()
	t.Setenv("AZURE_STORAGE_ACCOUNT", "account")
	t.Setenv("AZURE_STORAGE_KEY", "a2V5")
	s, err := storage.Open(t.Context(), "azblob://container/run?protocol=http&localemu=true&patience=1ms&domain="+
		strings.TrimPrefix(server.URL, "http://"))
	require.NoError(t, err)
	defer s.Close()
	for _, text := range []string{
		head + `<Blob><Name>run/a</Name></Blob>` + tail,
		head + `<Blob><Name>run/a</Name><Properties><Content-Length>7</Content-Length></Properties></Blob>` + tail,
		head + `<Blob><Properties/></Blob>` + tail,
		"garbage", "<html><body>Please log in</body></html>", head,
	} {
		body = text
		infos, err := s.List(t.Context(), "")
		var e *blobstore.Error
		assert.ErrorAs(t, err, &e, "%s: %v", text, infos)
	}
	body = head + `<Blob><Name>run/a</Name><Properties><Last-Modified>Fri, 02 Jan 2026 03:04:05 ` +
		`GMT</Last-Modified><Content-Length>7</Content-Length></Properties></Blob>` + tail
	infos, err := s.List(t.Context(), "")
	require.NoError(t, err)
	require.Len(t, infos, 1)
}
