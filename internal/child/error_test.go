package child

import (
	"io/fs"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/tpustrategy/tpustrategy/errkind"
)

func TestErrors(t *testing.T) {
	aborted := &Error{State: "signal: aborted"}
	assert.EqualError(t, aborted, "the process died: signal: aborted")
	assert.False(t, aborted.Killed())
	killed := &Error{State: "signal: killed"}
	assert.True(t, killed.Killed())
	assert.ErrorContains(t, killed, "when memory runs out")
	assert.Equal(t, errkind.InternalError, errkind.KindOf(killed))

	none := startError("/no/such", fs.ErrNotExist)
	assert.EqualError(t, none, "starting /no/such: file does not exist")
	assert.ErrorIs(t, none, fs.ErrNotExist)
	assert.ErrorIs(t, none, ErrStart)
	assert.Equal(t, errkind.NotFoundError, errkind.KindOf(none))
	assert.Equal(t, errkind.UnavailableError, errkind.KindOf(startError("", nil)))
}
