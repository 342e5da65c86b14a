package fit

import (
	"context"
	"errors"
	"io/fs"
	"strings"
	"time"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/storage"
)

// tableFile stores the text of a table. It is a *files.Appender or a *tableObject.
type tableFile interface {
	Size() int64
	Bytes(limit int64) ([]byte, error)
	Append(record []byte) error
	Truncate(size int64) error
	Sync() error
	Close() error
}

// tableObject is a table in an object store. A store cannot append to an object, so the text is
// kept in memory, and Sync uploads all of it.
type tableObject struct {
	ctx          context.Context // the run's context without cancellation by an interrupt
	store        storage.Store
	name         string
	text         []byte
	dirty        bool          // changed since the last upload
	syncDuration time.Duration // duration of the last upload
	syncTime     time.Time     // end of the last upload
}

// openTableObject reads the table at a URL; a missing table is empty. It returns fs.ErrExist if
// isNew is set and the table exists.
func openTableObject(ctx context.Context, url string, isNew bool) (*tableObject, error) {
	i := strings.LastIndexByte(url, '/')
	store, err := storage.Open(ctx, url[:i])
	if err != nil {
		return nil, err
	}
	o := &tableObject{ctx: ctx, store: store, name: url[i+1:], dirty: true}
	o.text, err = storage.ReadAll(ctx, store, o.name, maxTableBytes)
	switch {
	case errors.Is(err, storage.ErrNotExist):
		return o, nil
	case err == nil && isNew:
		err = fs.ErrExist
	}
	if err != nil {
		return nil, errors.Join(err, store.Close())
	}
	return o, nil
}

func (o *tableObject) Size() int64 { return int64(len(o.text)) }

func (o *tableObject) Bytes(int64) ([]byte, error) { return append([]byte(nil), o.text...), nil }

func (o *tableObject) Append(record []byte) error {
	o.text, o.dirty = append(o.text, record...), true
	return nil
}

func (o *tableObject) Truncate(size int64) error {
	o.text, o.dirty = o.text[:size], true
	return nil
}

// syncTimeout limits the time of one upload, for which the next step waits.
const syncTimeout = time.Minute

// Sync uploads the text if it has changed since the last upload.
func (o *tableObject) Sync() error {
	if !o.dirty {
		return nil
	}
	ctx, cancel := context.WithTimeoutCause(o.ctx, syncTimeout, &errkind.Fault{Op: "fit: csv", Subject: o.name,
		Reason: "the store did not accept the table within " + syncTimeout.String(), Class: errkind.DeadlineExceededError})
	defer cancel()
	start := time.Now()
	err := storage.PutBytes(ctx, o.store, o.name, o.text, storage.PutOptions{})
	o.syncDuration, o.syncTime, o.dirty = time.Since(start), time.Now(), err != nil
	return err
}

// smallTableBytes is the size up to which a table is uploaded with every checkpoint.
const smallTableBytes = 1 << 20

// shouldSync reports whether this checkpoint uploads the table. A large table is only uploaded if
// uploads use less than a twentieth of the time.
func (o *tableObject) shouldSync() bool {
	return len(o.text) <= smallTableBytes || time.Since(o.syncTime) >= 20*o.syncDuration
}

func (o *tableObject) Close() error { return o.store.Close() }
