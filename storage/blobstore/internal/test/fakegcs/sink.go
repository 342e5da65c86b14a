package fakegcs

import (
	"context"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"

	gcloud "cloud.google.com/go/storage"
	"github.com/stretchr/testify/require"
)

// Sink is a fast server for benchmarks. It accepts chunked uploads, computes their checksums and
// discards the data. Reads return ranges of an object of ZeroBytes zeros.
type Sink struct {
	server *httptest.Server
	mu     sync.Mutex
	sums   map[string]*sum // running uploads by name
}

type sum struct {
	bytes int64
	crc   uint32
}

// ZeroBytes is the size of the object that reads return.
const ZeroBytes = 1 << 40

// StartSink starts a sink, and stops it when the test ends.
func StartSink(t testing.TB) *Sink {
	s := &Sink{sums: map[string]*sum{}}
	s.server = httptest.NewServer(s)
	t.Cleanup(s.server.Close)
	return s
}

// Client returns Google's client for the sink.
func (s *Sink) Client(t testing.TB) *gcloud.Client {
	client, err := gcloud.NewClient(context.Background(), clientOptions(s.server.URL)...)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, client.Close()) })
	return client
}

// ServeHTTP handles a chunk of an upload or a read.
func (s *Sink) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodGet {
		zeros(w, r)
		return
	}
	name := r.URL.Query().Get("name")
	if !r.URL.Query().Has("upload_id") {
		_, _ = io.Copy(io.Discard, r.Body)
		s.mu.Lock()
		s.sums[name] = &sum{}
		s.mu.Unlock()
		w.Header().Set("Location", s.server.URL+r.URL.Path+"?uploadType=resumable&upload_id=1&name="+name)
		return
	}
	s.mu.Lock()
	upload := s.sums[name]
	s.mu.Unlock()
	if upload == nil {
		http.Error(w, "no such upload", http.StatusNotFound)
		return
	}
	p := make([]byte, 256<<10)
	for {
		n, err := r.Body.Read(p)
		upload.bytes += int64(n)
		upload.crc = crc32.Update(upload.crc, castagnoli, p[:n])
		if err != nil {
			break
		}
	}
	if strings.HasSuffix(r.Header.Get("Content-Range"), "/*") {
		w.Header().Set("Range", fmt.Sprintf("bytes=0-%d", upload.bytes-1))
		w.Header().Set("X-Http-Status-Code-Override", "308")
		return
	}
	_ = json.NewEncoder(w).Encode(map[string]string{"name": name, "bucket": "bucket",
		"size":   strconv.FormatInt(upload.bytes, 10),
		"crc32c": base64.StdEncoding.EncodeToString(binary.BigEndian.AppendUint32(nil, upload.crc)), "generation": "1"})
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func zeros(w http.ResponseWriter, r *http.Request) {
	from, to := int64(0), int64(ZeroBytes-1)
	if _, err := fmt.Sscanf(r.Header.Get("Range"), "bytes=%d-%d", &from, &to); err != nil || from > to {
		http.Error(w, "no range", http.StatusRequestedRangeNotSatisfiable)
		return
	}
	w.Header().Set("Content-Length", strconv.FormatInt(to-from+1, 10))
	w.Header().Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", from, to, int64(ZeroBytes)))
	w.Header().Set("Last-Modified", "Sun, 22 Nov 2026 12:00:00 GMT")
	w.WriteHeader(http.StatusPartialContent)
	p := make([]byte, 256<<10)
	for left := to - from + 1; left > 0; {
		n, err := w.Write(p[:min(left, int64(len(p)))])
		if left -= int64(n); err != nil {
			return
		}
	}
}
