package s3_test

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/storage"
	"github.com/tpustrategy/tpustrategy/storage/blobstore/internal/test/faultproxy"
	"github.com/tpustrategy/tpustrategy/storage/blobstore/s3"
	"github.com/tpustrategy/tpustrategy/storage/storagetest"
)

// serve starts a server of S3's protocol with a proxy before it, and returns the URL of a store.
func serve(t *testing.T) (*faultproxy.Proxy, string) {
	t.Helper()
	backend := s3mem.New()
	require.NoError(t, backend.CreateBucket("bucket"))
	server := httptest.NewServer(gofakes3.New(backend).Server())
	t.Cleanup(server.Close)
	proxy, err := faultproxy.Start(server.URL)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, proxy.Close()) })
	t.Setenv("AWS_ACCESS_KEY_ID", "id")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "secret")
	t.Setenv("AWS_MAX_ATTEMPTS", "1")
	return proxy, "s3://bucket/run?region=us-east-1&use_path_style=true&patience=10s&chunk=5242880&endpoint=" + proxy.URL()
}

func TestS3KeepsTheContract(t *testing.T) {
	storagetest.Run(t, func(t *testing.T) storage.Store {
		_, url := serve(t)
		s, err := storage.Open(t.Context(), url)
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, s.Close()) })
		return s
	})
}

// TestAPutToS3OutlivesFaults sends a small object, which is to be absent, and one of three parts.
func TestAPutToS3OutlivesFaults(t *testing.T) {
	proxy, url := serve(t)
	s, err := s3.Open(t.Context(), url)
	require.NoError(t, err)
	defer s.Close()
	large := bytes.Repeat([]byte("0123456789abcdef"), 11<<16)
	for _, fault := range []faultproxy.Fault{faultproxy.Unavailable, faultproxy.LoseAnswer, faultproxy.Twice} {
		for i, data := range [][]byte{large[:3000], large} {
			name := fmt.Sprintf("%d-%d", fault, i)
			proxy.Choose(func(_ *http.Request, n int) faultproxy.Fault {
				if n == 1+i { // of the large one its first part
					return fault
				}
				return faultproxy.None
			})
			require.NoError(t, s.Put(t.Context(), name, storage.PutOptions{IfAbsent: true}, func(w io.Writer) error {
				_, err := w.Write(data)
				return err
			}), fault)
			got, err := storage.ReadAll(t.Context(), s, name, 1<<30)
			require.NoError(t, err, fault)
			require.True(t, bytes.Equal(data, got), fault)
		}
	}
}
