package fakegcs

import (
	"context"
	"net/http"
	"testing"

	gcloud "cloud.google.com/go/storage"
	"github.com/fsouza/fake-gcs-server/fakestorage"
	"github.com/stretchr/testify/require"
	"google.golang.org/api/option"

	"github.com/tpustrategy/tpustrategy/storage/blobstore"
	"github.com/tpustrategy/tpustrategy/storage/blobstore/gcs"
	"github.com/tpustrategy/tpustrategy/storage/blobstore/internal/test/faultproxy"
)

// Server is a fake Google Cloud Storage server for tests, with a proxy that can inject faults.
type Server struct {
	Proxy  *faultproxy.Proxy
	server *fakestorage.Server
}

// Start starts a server with one bucket and its proxy, and stops both when the test ends.
func Start(t testing.TB, bucket string) *Server {
	t.Helper()
	proxy, err := faultproxy.Listen()
	require.NoError(t, err)
	server, err := fakestorage.NewServerWithOptions(fakestorage.Options{Scheme: "http", Host: "127.0.0.1",
		PublicHost: proxy.Host()})
	require.NoError(t, err)
	server.CreateBucketWithOpts(fakestorage.CreateBucketOpts{Name: bucket})
	require.NoError(t, proxy.Forward(server.URL()))
	t.Cleanup(func() {
		require.NoError(t, proxy.Close())
		server.Stop()
	})
	return &Server{Proxy: proxy, server: server}
}

// Open opens a store in a bucket, through Google's client and the proxy.
func (s *Server) Open(t testing.TB, bucket string, opts blobstore.Options) *blobstore.Store {
	t.Helper()
	return open(t, s.Proxy, bucket, opts)
}

// open opens a store through a proxy.
func open(t testing.TB, p *faultproxy.Proxy, bucket string, opts blobstore.Options,
	more ...option.ClientOption) *blobstore.Store {
	t.Helper()
	client, err := gcloud.NewClient(context.Background(), append(clientOptions(p.URL()), more...)...)
	require.NoError(t, err)
	store, err := gcs.New(client, bucket, opts, client.Close)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, store.Close()) })
	return store
}

// clientOptions returns the options with which Google's client connects to the server at url.
func clientOptions(url string) []option.ClientOption {
	return []option.ClientOption{option.WithEndpoint(url + "/storage/v1/"),
		option.WithHTTPClient(&http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 32}})}
}

// Object reads an object directly from the server. It returns the content, and whether the object
// exists.
func (s *Server) Object(bucket, name string) ([]byte, bool) {
	o, err := s.server.GetObject(bucket, name)
	return o.Content, err == nil
}

// Names lists a bucket directly on the server and returns the names of its objects.
func (s *Server) Names(bucket string) []string {
	answer, err := s.server.ListObjectsWithOptionsPaginated(bucket, fakestorage.ListOptions{})
	names := []string{}
	if err != nil {
		return names
	}
	for _, o := range answer.Objects {
		names = append(names, o.Name)
	}
	return names
}

// Second starts another proxy for the same server, so that faults of one client do not affect a
// second client. It returns the proxy and a store that connects through it.
func (s *Server) Second(t testing.TB, bucket string, opts blobstore.Options) (*faultproxy.Proxy, *blobstore.Store) {
	t.Helper()
	proxy, err := faultproxy.Start(s.server.URL())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, proxy.Close()) })
	// The server accepts the XML form of reads only at the address of the first proxy.
	return proxy, open(t, proxy, bucket, opts, gcloud.WithJSONReads())
}

// Put writes an object directly to the server, to simulate another writer.
func (s *Server) Put(bucket, name string, content []byte) {
	s.server.CreateObject(fakestorage.Object{ObjectAttrs: fakestorage.ObjectAttrs{BucketName: bucket, Name: name},
		Content: content})
}
