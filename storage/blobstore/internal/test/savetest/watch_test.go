package savetest

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/fit/watchdog"
	"github.com/tpustrategy/tpustrategy/storage"
	"github.com/tpustrategy/tpustrategy/storage/blobstore"
	"github.com/tpustrategy/tpustrategy/storage/blobstore/internal/test/fakegcs"
	"github.com/tpustrategy/tpustrategy/storage/blobstore/internal/test/faultproxy"
)

// TestHostsSeeEachOtherThroughABucket: three hosts put their records into a bucket whose requests
// fail now and then. One waits for its input; all name it.
func TestHostsSeeEachOtherThroughABucket(t *testing.T) {
	server := fakegcs.Start(t, "bucket")
	server.Proxy.Choose(faultproxy.Random(7, 0.05, faultproxy.Unavailable, faultproxy.LoseAnswer))
	run := storage.Sub(server.Open(t, "bucket", blobstore.Options{}), "run")
	var mu sync.Mutex
	named := map[int]watchdog.Finding{}
	for i := range 3 {
		w, err := watchdog.Start(t.Context(), watchdog.Options{Host: i, Hosts: 3, Run: "r", Name: "w",
			RecordStore: watchdog.NewRecordStore(run), MinTimeout: 2 * time.Second,
			OnReport: func(r watchdog.Report) {
				mu.Lock()
				defer mu.Unlock()
				if f := r.Findings[0]; f.Cause.IsFatal() && named[i].Text == "" {
					named[i] = f
				}
			}})
		require.NoError(t, err)
		defer w.Close(nil)
		for range 5 {
			w.SetActivity(watchdog.Input, "")
			w.SetActivity(watchdog.Launch, "")
			w.CompleteStep()
		}
		w.SetActivity(watchdog.Input, "")
		if i != 1 {
			w.SetActivity(watchdog.Launch, "")
		}
	}
	require.Eventually(t, func() bool {
		mu.Lock()
		defer mu.Unlock()
		return len(named) == 3
	}, 20*time.Second, 50*time.Millisecond)
	for i, f := range named {
		assert.Equal(t, []any{1, watchdog.InInput}, []any{f.Host, f.Cause}, "host %d says %s", i, f)
	}

	if os.Getenv("TPUSTRATEGY_SAVES") == "" {
		return // make test-saves builds commands
	}
	program := filepath.Join(t.TempDir(), "tpustrategy")
	build := exec.Command("go", "build", "-ldflags=-w", "-overlay", "drivers/gs.json", "-o", program,
		"github.com/tpustrategy/tpustrategy/cmd/tpustrategy")
	build.Dir = "../../.."
	out, err := build.CombinedOutput()
	require.NoError(t, err, "%s", out)
	watch := exec.Command(program, "watch", "gs://bucket/run", "--once", "--json")
	watch.Env = append(os.Environ(), "STORAGE_EMULATOR_HOST="+server.Proxy.Host())
	answer, err := watch.Output()
	require.NoError(t, err)
	var seen struct{ Findings []watchdog.Finding }
	require.NoError(t, json.Unmarshal(answer, &seen))
	require.Len(t, seen.Findings, 1)
	assert.Equal(t, 1, seen.Findings[0].Host)
}
