package worker

import (
	"errors"
	"io/fs"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/pjrt"
)

// What a worker's error says, of what kind it is and what it matches arrive with its answer.
func TestErrorsTravelWithTheAnswer(t *testing.T) {
	arrived := func(err error) error {
		sent := answer{Protocol: protocol}
		sent.fail(err)
		data, encoded := encode(sent)
		require.NoError(t, encoded)
		var a answer
		require.NoError(t, decode(data, &a))
		return a.err()
	}
	refused := &pjrt.Error{Op: "compile", Code: pjrt.ResourceExhausted, Plugin: "/x.so", Msg: "no room", Log: "all of it"}
	assert.Equal(t, refused, arrived(refused))
	wrong := &pjrt.CompileError{Field: "Replicas", Reason: "-1", Hint: "give one"}
	assert.Equal(t, wrong, arrived(wrong))

	missing := arrived(&pjrt.PluginError{Path: "/x.so", Reason: pjrt.PluginMissing, Err: fs.ErrNotExist})
	assert.EqualError(t, missing, "worker: compile: pjrt: plugin /x.so: missing: file does not exist")
	assert.Equal(t, errkind.NotFoundError, errkind.Of(missing))
	unsupported := arrived(&errkind.Fault{Op: "bound", Reason: "not here", Err: errors.ErrUnsupported})
	require.ErrorIs(t, unsupported, errors.ErrUnsupported)
	assert.EqualError(t, unsupported, "worker: compile: bound: not here: unsupported operation")

	older := answer{Protocol: protocol - 1}
	assert.ErrorContains(t, older.err(), "build both from one version")
	assert.NoError(t, (&answer{Protocol: protocol}).err())
}
