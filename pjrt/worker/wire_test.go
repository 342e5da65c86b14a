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

// TestResponseKeepsErrors checks text, kind and matches of an error after encoding.
func TestResponseKeepsErrors(t *testing.T) {
	arrived := func(err error) error {
		sent := response{Protocol: protocolVersion}
		sent.setError(err)
		data, encoded := encode(sent)
		require.NoError(t, encoded)
		var a response
		require.NoError(t, decode(data, &a))
		return a.err()
	}
	refused := &pjrt.Error{Op: "compile", Code: pjrt.ResourceExhausted, Plugin: "/x.so", Msg: "no room",
		Log: "all of it"}
	assert.Equal(t, refused, arrived(refused))
	wrong := &pjrt.CompileError{Field: "Replicas", Reason: "-1", Hint: "give one"}
	assert.Equal(t, wrong, arrived(wrong))

	missing := arrived(&pjrt.PluginError{Path: "/x.so", Reason: pjrt.PluginMissing, Err: fs.ErrNotExist})
	assert.EqualError(t, missing, "worker: compile: pjrt: plugin /x.so: missing: file does not exist")
	assert.Equal(t, errkind.NotFoundError, errkind.KindOf(missing))
	unsupported := arrived(&errkind.Fault{Op: "bound", Reason: "not here", Err: errors.ErrUnsupported})
	require.ErrorIs(t, unsupported, errors.ErrUnsupported)
	assert.EqualError(t, unsupported, "worker: compile: bound: not here: unsupported operation")

	older := response{Protocol: protocolVersion - 1}
	assert.ErrorContains(t, older.err(), "build both programs from the same version")
	assert.NoError(t, (&response{Protocol: protocolVersion}).err())
}
