package clusterresolver

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// metadataServer simulates the metadata server as documented in "About VM metadata"
// (cloud.google.com/compute/docs/metadata/overview) and "Query VM metadata"
// (.../metadata/querying-metadata). It requires the request header Metadata-Flavor: Google and
// returns this header with an ETag. It returns 404 for an unknown key, and supports long polls with
// wait_for_change, last_etag and timeout_sec.
type metadataServer struct {
	mu      sync.Mutex
	values  map[string]string
	version map[string]int
	changed chan struct{}
	hits    map[string]int
	// fault, if set, can respond instead of the server. n counts requests from 1.
	fault func(w http.ResponseWriter, r *http.Request, n int) bool
	n     int
}

func newMetadataServer(values map[string]string) *metadataServer {
	return &metadataServer{values: values, version: map[string]int{}, changed: make(chan struct{}), hits: map[string]int{}}
}

func (s *metadataServer) set(key, value string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.values[key] = value
	s.version[key]++
	close(s.changed)
	s.changed = make(chan struct{})
}

func (s *metadataServer) count(key string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.hits[key]
}

func (s *metadataServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	s.n++
	n, fault := s.n, s.fault
	key, ok := strings.CutPrefix(r.URL.Path, "/computeMetadata/v1/")
	s.hits[key]++
	s.mu.Unlock()
	if fault != nil && fault(w, r, n) {
		return
	}
	if !ok || r.Header.Get("Metadata-Flavor") != "Google" {
		http.Error(w, "Missing Metadata-Flavor:Google header.", http.StatusForbidden)
		return
	}
	q := r.URL.Query()
	var timeout <-chan time.Time
	if sec, err := strconv.Atoi(q.Get("timeout_sec")); err == nil {
		timeout = time.After(time.Duration(sec) * time.Second)
	}
	for {
		s.mu.Lock()
		value, known := s.values[key]
		etag, changed := fmt.Sprintf("%016x", s.version[key]+1), s.changed
		s.mu.Unlock()
		if q.Get("wait_for_change") == "true" && q.Get("last_etag") == etag {
			select {
			case <-changed:
				continue
			case <-timeout:
			case <-r.Context().Done():
				return
			}
		}
		w.Header().Set("Metadata-Flavor", "Google")
		w.Header().Set("Content-Type", "application/text")
		if !known {
			http.Error(w, "<title>Error 404 (Not Found)!!1</title>", http.StatusNotFound)
			return
		}
		w.Header().Set("ETag", etag)
		fmt.Fprint(w, value)
		return
	}
}

// redirect sends every request to one server, independent of its address.
type redirect struct {
	host string
	base http.RoundTripper
}

func (t redirect) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.URL.Host = t.host
	return t.base.RoundTrip(r)
}

// serve starts the handler on a loopback port and returns a transport that connects to it.
func serve(t *testing.T, h http.Handler) http.RoundTripper {
	t.Helper()
	s := httptest.NewServer(h)
	base := &http.Transport{}
	t.Cleanup(func() {
		base.CloseIdleConnections()
		s.CloseClientConnections()
		s.Close()
	})
	return redirect{s.Listener.Addr().String(), base}
}

// servePipe is like serve, but uses in-memory pipes, which tests with a fake clock require.
func servePipe(t *testing.T, h http.Handler) http.RoundTripper {
	t.Helper()
	l := &pipeListener{conns: make(chan net.Conn), done: make(chan struct{})}
	s := &http.Server{Handler: h}
	go s.Serve(l)
	base := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		client, server := net.Pipe()
		select {
		case l.conns <- server:
			return client, nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}}
	t.Cleanup(func() {
		base.CloseIdleConnections()
		s.Close()
	})
	return base
}

type pipeListener struct {
	conns chan net.Conn
	done  chan struct{}
	once  sync.Once
}

func (l *pipeListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}

func (l *pipeListener) Close() error {
	l.once.Do(func() { close(l.done) })
	return nil
}

func (l *pipeListener) Addr() net.Addr { return &net.IPAddr{} }

// env returns a Getenv for the given names and values.
func env(pairs ...string) Getenv {
	m := map[string]string{}
	for i := 0; i < len(pairs); i += 2 {
		m[pairs[i]] = pairs[i+1]
	}
	return func(name string) string { return m[name] }
}
