package blobstore_test

import (
	"errors"
	"io/fs"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/storage"
	"github.com/tpustrategy/tpustrategy/storage/blobstore"
)

func TestAnErrorSaysWhatWasDoneToWhatAndWhatToDo(t *testing.T) {
	cause := errors.New("503")
	e := &blobstore.Error{Op: "put", Store: "gs://bucket/run", Object: "a/b", Reason: blobstore.Unavailable, Attempts: 3,
		Elapsed: 2 * time.Second, Err: cause, Hint: "try later"}
	assert.EqualError(t, e,
		"blobstore: put gs://bucket/run/a/b: the service or the network failed (3 attempts in 2s): 503; try later")
	assert.ErrorIs(t, e, cause)
	assert.Equal(t, errkind.UnavailableError, e.Kind())
	assert.EqualError(t, &blobstore.Error{Op: "list", Store: "gs://bucket", Err: cause},
		"blobstore: list gs://bucket: 503")

	missing := &blobstore.Error{Reason: blobstore.NotFound}
	assert.ErrorIs(t, missing, storage.ErrNotExist)
	assert.ErrorIs(t, missing, fs.ErrNotExist)
	assert.NotErrorIs(t, missing, storage.ErrExists)
	exists := &blobstore.Error{Reason: blobstore.AlreadyExists}
	assert.ErrorIs(t, exists, storage.ErrExists)
	assert.NotErrorIs(t, exists, storage.ErrNotExist)
}

func TestEachReasonHasAKindAndAText(t *testing.T) {
	for r := blobstore.Unknown; r <= blobstore.InvalidRequest; r++ {
		assert.NotEmpty(t, r.String())
		assert.NotEqual(t, errkind.Unknown, (&blobstore.Error{Reason: r}).Kind(), r.String())
	}
	assert.Equal(t, "reason 99", blobstore.Reason(99).String())
}
