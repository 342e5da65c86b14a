package files

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/errkind"
)

func requireReason(t *testing.T, err error, want Reason) *Error {
	t.Helper()
	var e *Error
	require.ErrorAs(t, err, &e)
	require.Equal(t, want, e.Reason, "%v", err)
	return e
}

func TestErrors(t *testing.T) {
	url := &Error{Path: "gs://b", Reason: IsURL, Hint: "copy it"}
	require.EqualError(t, url, "gs://b: it is a URL; copy it")
	require.ErrorIs(t, url, errors.ErrUnsupported)
	require.Equal(t, errkind.NotImplementedError, url.Kind())
	link := &Error{Path: "/x", Reason: IsLink, Found: "mode 0777"}
	require.EqualError(t, link, "/x: it is a symbolic link (mode 0777)")
	require.NotErrorIs(t, link, errors.ErrUnsupported)
	require.Equal(t, errkind.PermissionDeniedError, link.Kind())
	require.Equal(t, errkind.ValueError, (&Error{Reason: TooLarge}).Kind())
	require.Equal(t, "Reason(99)", Reason(99).String())
}
