package errkind_test

import (
	"errors"
	"io/fs"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/tpustrategy/tpustrategy/errkind"
)

func TestTextOmitsEmptyParts(t *testing.T) {
	cause := errors.New("cause")
	assert.Equal(t, "a: b", errkind.Format("a", "b", nil, ""))
	assert.Equal(t, "a: cause", errkind.Format("a", "", cause, ""))
	assert.Equal(t, "a: b: cause", errkind.Format("a", "b", cause, ""))
	assert.Equal(t, "a: b: cause; do c", errkind.Format("a", "b", cause, "do c"))
}

func TestFaultKind(t *testing.T) {
	f := &errkind.Fault{Op: "sharding: parse", Subject: `tensor "w"`, Reason: "no dimension", Hint: "give one",
		Class: errkind.ValueError}
	assert.EqualError(t, f, `sharding: parse tensor "w": no dimension; give one`)
	assert.Equal(t, errkind.ValueError, errkind.KindOf(f))
	f = &errkind.Fault{Op: "files: open", Err: fs.ErrNotExist}
	assert.EqualError(t, f, "files: open: file does not exist")
	assert.ErrorIs(t, f, fs.ErrNotExist)
	assert.Equal(t, errkind.NotFoundError, errkind.KindOf(f))
}

func TestFaultMatch(t *testing.T) {
	state := errkind.New(errkind.ValueError, "input: the position does not fit")
	f := &errkind.Fault{Match: state, Reason: "element 3 of 2", Err: fs.ErrInvalid, Hint: "start again"}
	assert.EqualError(t, f, "input: the position does not fit: element 3 of 2: invalid argument; start again")
	assert.ErrorIs(t, f, state)
	assert.ErrorIs(t, f, fs.ErrInvalid)
	assert.NotErrorIs(t, f, fs.ErrClosed)
	assert.Equal(t, errkind.ValueError, errkind.KindOf(f))
	assert.NotErrorIs(t, &errkind.Fault{Op: "input: open"}, state)
}

func TestTextOmitsRepeatedPackage(t *testing.T) {
	inner := &errkind.Fault{Op: "input: batch", Reason: "no rows"}
	assert.Equal(t, "input: map: batch: no rows", errkind.Format("input: map", "", inner, ""))
	assert.Equal(t, "feed: map: input: batch: no rows", errkind.Format("feed: map", "", inner, ""))
}
