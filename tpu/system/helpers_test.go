package system_test

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	clusterresolver "github.com/tpustrategy/tpustrategy/cluster_resolver"
	"github.com/tpustrategy/tpustrategy/internal/test/plugintest"
)

func emptyGetenv(string) string { return "" }

func getenvFrom(pairs map[string]string) func(string) string {
	return func(name string) string { return pairs[name] }
}

// workerCluster returns a cluster of workers at the given addresses. This process is the worker
// with index id.
func workerCluster(t testing.TB, id int, addresses ...string) *clusterresolver.Cluster {
	t.Helper()
	spec, err := clusterresolver.NewClusterSpec(map[string][]string{"worker": addresses})
	require.NoError(t, err)
	return &clusterresolver.Cluster{Source: "test", Spec: spec, Task: clusterresolver.Task{Type: "worker", ID: id}}
}

// newMetadataClient returns a client of a metadata server with the given values.
func newMetadataClient(t testing.TB, values map[string]string) *clusterresolver.MetadataClient {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Metadata-Flavor", "Google")
		value, ok := values[strings.TrimPrefix(r.URL.Path, "/computeMetadata/v1/")]
		if !ok {
			w.WriteHeader(http.StatusNotFound)
			return
		}
		if value == "forbidden" {
			w.WriteHeader(http.StatusForbidden)
			return
		}
		fmt.Fprint(w, value)
	}))
	t.Cleanup(server.Close)
	return clusterresolver.NewMetadataClient(clusterresolver.MetadataOptions{Transport: &http.Transport{
		DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, network, server.Listener.Addr().String())
		},
	}})
}

// compilePlugin compiles a plugin whose behavior is selected by macros.
func compilePlugin(t testing.TB, define ...string) string {
	t.Helper()
	dir := t.TempDir()
	c, so := filepath.Join(dir, "plugin.c"), filepath.Join(dir, "plugin.so")
	require.NoError(t, os.WriteFile(c, []byte(`
#include <stddef.h>
#include <string.h>
#include <unistd.h>
struct api { size_t size; void *ext; size_t vsize; void *vext; int major, minor; void *slots[120]; };
static struct api table = { .size = 40 + 8 * 120, .vsize = 24, .minor = 81 };
struct message { size_t size; void *ext; void *error; const char *text; size_t n; };
static int error;
static void destroy(void *a) {}
static int calls;
#ifndef BUSY
#define BUSY 1000
#endif
static void message(struct message *m) { m->text = calls <= BUSY ? TEXT : "no longer in the way"; m->n = strlen(m->text); }
static void *code(void *a) { ((int *)a)[6] = 14; return NULL; }
static void *initialize(void *a) {
#ifdef HANG_INITIALIZE
  sleep(3);
#endif
#ifdef FAIL_INITIALIZE
  return &error;
#endif
  return NULL;
}
static void *client(void *a) {
#ifdef HANG_CLIENT
  sleep(8); /* longer than any test's deadline */
#endif
  calls++; /* of the first BUSY ones, or without BUSY of all, the error has the text */
  return &error;
}
void *GetPjrtApi(void) {
  table.slots[0] = destroy; table.slots[1] = message; table.slots[2] = code; table.slots[3] = initialize; table.slots[10] = client;
  return &table;
}`), 0o644))
	out, err := exec.Command("cc", append([]string{"-shared", "-fPIC", "-o", so, c}, define...)...).CombinedOutput()
	require.NoError(t, err, string(out))
	return so
}

// runInChild runs the test in a child process, because libtpu reads its environment only once.
func runInChild(t *testing.T) bool {
	t.Helper()
	plugintest.Libtpu(t)
	if plugintest.InChild(t) {
		return true
	}
	out, err := plugintest.Child(t)
	require.NoError(t, err, out)
	return false
}
