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
		"NoSuchBucket":               {404, blobstore.BucketNotFound, "aws s3 mb"},
		"AccessDenied":               {403, blobstore.PermissionDenied, "s3:PutObject"},
		"SlowDown":                   {503, blobstore.Unavailable, "Options.RetryTimeout"},
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

// TestAListingThatIsNoneIsAnError checks that a malformed listing is an error, and neither a panic
// of the driver nor an empty result.
func TestAListingThatIsNoneIsAnError(t *testing.T) {
	const head, tail = `<?xml version="1.0" encoding="UTF-8"?><ListBucketResult ` +
		`xmlns="http://s3.amazonaws.com/doc/2006-03-01/">`, `</ListBucketResult>`
	const whole = `<Contents><Key>run/a</Key><LastModified>2026-01-02T03:04:05.000Z</LastModified><Size>7</Size></Contents>`
	body := head + tail
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/xml")
		_, _ = io.WriteString(w, body)
	}))
	t.Cleanup(server.Close)
	t.Setenv("AWS_ACCESS_KEY_ID", "id")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "secret")
	t.Setenv("AWS_MAX_ATTEMPTS", "1")
	s, err := storage.Open(t.Context(), "s3://bucket/run?region=us-east-1&use_path_style=true&patience=1ms&endpoint="+
		server.URL)
	require.NoError(t, err)
	defer s.Close()
	for name, text := range map[string]string{
		"has no date": head + `<Contents><Key>run/a</Key><Size>7</Size></Contents>` + tail,
		`has the date "yesterday"`: head +
			`<Contents><Key>run/a</Key><Size>7</Size><LastModified>yesterday</LastModified></Contents>` + tail,
		"has no size": head +
			`<Contents><Key>run/a</Key><LastModified>2026-01-02T03:04:05Z</LastModified></Contents>` + tail,
		`"run/a" has no size`:               head + `<Contents><Key>run/a</Key><Size>-7</Size></Contents>` + tail,
		"object 1 has no key":               head + whole + `<Contents><Size>7</Size></Contents>` + tail,
		"in \"garbage\"":                    "garbage",
		"EOF":                               "",
		"expected element type":             "<html><body>Please log in</body></html>",
		"XML syntax error":                  head + whole,
		"invalid UTF-8":                     head + "<Contents><Key>\xff\xfe</Key></Contents>" + tail,
		"has no continuation token":         head + "<IsTruncated>true</IsTruncated>" + whole + tail,
		`strconv.ParseBool: parsing "perha`: head + "<IsTruncated>perhaps</IsTruncated>" + tail,
	} {
		body = text
		infos, err := s.List(t.Context(), "")
		var e *blobstore.Error
		if assert.ErrorAs(t, err, &e, "%s: %v", name, infos) {
			assert.Equal(t, blobstore.Corrupted, e.Reason, "%v", err)
			assert.ErrorIs(t, err, blobstore.ErrCorrupted)
			assert.ErrorContains(t, err, name)
		}
	}
	body = head + whole + tail
	infos, err := s.List(t.Context(), "")
	require.NoError(t, err)
	require.Len(t, infos, 1)
	assert.Equal(t, "a", infos[0].Name)
	body = head + tail
	infos, err = s.List(t.Context(), "")
	require.NoError(t, err, "an empty folder is one")
	assert.Empty(t, infos)
}
