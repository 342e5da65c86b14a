package savetest

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/fit/interrupt"
	"github.com/tpustrategy/tpustrategy/internal/test/plugintest"
	"github.com/tpustrategy/tpustrategy/storage/blobstore/internal/test/fakegcs"
	"github.com/tpustrategy/tpustrategy/storage/blobstore/internal/test/faultproxy"
)

// TestACommandWithABucketIsInterruptedAndGoesOn builds an example with gs:// laid into it, as the
// guide of package drivers says, interrupts it when its first checkpoint is in the bucket, and starts
// it again: it ends as a run that nobody interrupted. `make test-saves` runs it.
func TestACommandWithABucketIsInterruptedAndGoesOn(t *testing.T) {
	if os.Getenv("TPUSTRATEGY_SAVES") == "" {
		t.Skip("make test-saves builds commands")
	}
	plugintest.CPU(t, 1)
	program := filepath.Join(t.TempDir(), "digits")
	build := exec.Command("go", "build", "-ldflags=-w", "-overlay", "drivers/gs.json", "-o", program,
		"github.com/tpustrategy/tpustrategy/examples/digits")
	build.Dir = "../../.."
	out, err := build.CombinedOutput()
	require.NoError(t, err, "%s", out)

	server := fakegcs.Start(t, "bucket")
	server.Proxy.Choose(faultproxy.Random(7, 0.05, faultproxy.Unavailable, faultproxy.CutRequest, faultproxy.LoseAnswer,
		faultproxy.CutAnswer))
	run := func(place string, interruptIt bool) (code int, text string) {
		args := []string{"-replicas", "4", "-logical", "2", "-steps", "120", "-save-every", "20"}
		if place != "" {
			args = append(args, "-out", place, "-resume")
		}
		var all bytes.Buffer
		cmd := exec.Command(program, args...)
		cmd.Env = append(os.Environ(), "STORAGE_EMULATOR_HOST="+server.Proxy.Host())
		cmd.Stdout, cmd.Stderr = &all, &all
		require.NoError(t, cmd.Start())
		for deadline := time.Now().Add(2 * time.Minute); interruptIt && time.Now().Before(deadline); {
			if strings.Contains(strings.Join(server.Names("bucket"), " "), "/checkpoint.json") {
				require.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
				break
			}
			time.Sleep(2 * time.Millisecond)
		}
		err := cmd.Wait()
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			return exit.ExitCode(), all.String()
		}
		require.NoError(t, err, all.String())
		return 0, all.String()
	}
	accuracy := regexp.MustCompile(`Held-out accuracy [0-9.]+ % after 120 steps`)
	code, plain := run("", false)
	require.Equal(t, 0, code, plain)
	want := accuracy.FindString(plain)
	require.NotEmpty(t, want, plain)

	code, text := run("gs://bucket/run", true)
	require.Equal(t, interrupt.ExitCode, code, text)
	code, text = run("gs://bucket/run", false)
	require.Equal(t, 0, code, text)
	require.Equal(t, want, accuracy.FindString(text), text)

	code, text = run("gs://elsewhere/run", false)
	require.NotEqual(t, 0, code)
	require.Contains(t, text, "gcloud storage buckets create gs://elsewhere")
}
