package savetest

import (
	"context"
	"io"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"gocloud.dev/blob/memblob"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/internal/test/strategytest"
	"github.com/tpustrategy/tpustrategy/storage"
	"github.com/tpustrategy/tpustrategy/storage/blobstore"
	"github.com/tpustrategy/tpustrategy/strategy/checkpoint"
)

// late is a store that returns an error for the Put of one manifest, and stores the manifest later.
type late struct {
	storage.Store
	mu    sync.Mutex
	after func() error // puts it
}

func (l *late) Put(ctx context.Context, name string, opts storage.PutOptions, write func(io.Writer) error) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if strings.HasSuffix(name, "/checkpoint.json") && l.after == nil {
		l.after = func() error { return l.Store.Put(context.Background(), name, opts, write) }
		return errkind.New(errkind.UnavailableError, "the service does not answer")
	}
	return l.Store.Put(ctx, name, opts, write)
}

// TestAManifestThatArrivesLateHasItsParts tests a service that stores a manifest after it reported
// that the Put had failed.
func TestAManifestThatArrivesLateHasItsParts(t *testing.T) {
	inner, err := blobstore.New(memblob.OpenBucket(nil), blobstore.Options{})
	require.NoError(t, err)
	defer inner.Close()
	store := &late{Store: inner}
	s := strategytest.New(t, 1, 2)
	g, err := variables(t.Context(), s, 1)
	require.NoError(t, err)
	m, err := checkpoint.NewManager(t.Context(), store, checkpoint.ManagerOptions{Strategy: s})
	require.NoError(t, err)
	require.NoError(t, m.Save(t.Context(), 1, g, checkpoint.SaveOptions{}))
	require.Error(t, m.Wait(t.Context()))
	require.NoError(t, store.after())
	holds(t, inner, 1)

	// A later save keeps it, as it is whole.
	require.NoError(t, fill(t.Context(), g, 2))
	require.NoError(t, m.Save(t.Context(), 2, g, checkpoint.SaveOptions{}))
	require.NoError(t, m.Close())
	holds(t, inner, 2)
	infos, err := inner.List(t.Context(), "step-0000000001/")
	require.NoError(t, err)
	require.Len(t, infos, 3)
}
