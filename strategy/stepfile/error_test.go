package stepfile_test

import (
	"io"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/strategy/stepfile"
)

func TestAnErrorSaysTheReasonAndWhatToDo(t *testing.T) {
	for _, c := range []struct {
		err  stepfile.Error
		want string
		kind errkind.Kind
	}{
		{stepfile.Error{Reason: stepfile.NotAFile}, "stepfile: it is no step file; give a file that Save wrote",
			errkind.ValueError},
		{stepfile.Error{Reason: stepfile.Damaged, Detail: "its checksum is wrong"},
			"stepfile: it is damaged: its checksum is wrong; copy the file again, or save the step again",
			errkind.DataLossError},
		{stepfile.Error{Reason: stepfile.Variable, Variable: "w", Detail: "it is Float32[2] here", Hint: "make it anew",
			Err: io.EOF},
			`stepfile: its variables do not fit: variable "w": it is Float32[2] here: EOF; make it anew`, errkind.ValueError},
		{stepfile.Error{Reason: stepfile.Unsupported}, "stepfile: it cannot be saved", errkind.NotImplementedError},
		{stepfile.Error{Reason: 99}, "stepfile: Reason(99)", errkind.ValueError},
	} {
		assert.Equal(t, c.want, c.err.Error())
		assert.Equal(t, c.kind, errkind.KindOf(&c.err))
	}
}

func TestEveryReasonHasAPhrase(t *testing.T) {
	for r := stepfile.NotAFile; r <= stepfile.Axes; r++ {
		require.NotContains(t, r.String(), "Reason(")
	}
	assert.Equal(t, "Reason(0)", stepfile.Reason(0).String())
	assert.Equal(t, "Reason(13)", (stepfile.Axes + 1).String())
}
