package system_test

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/internal/test/plugintest"
	"github.com/tpustrategy/tpustrategy/pjrt"
	"github.com/tpustrategy/tpustrategy/tpu/system"
)

const (
	roleEnv = "TPUSTRATEGY_TEST_LOCK_ROLE"
	dirEnv  = "TPUSTRATEGY_TEST_LOCK_DIR"
)

// The second process loads libtpu while the first process has it loaded.
func TestLockedLibtpuErrorContainsHolder(t *testing.T) {
	path := plugintest.Path(t, "tpu")
	dir := os.Getenv(dirEnv)
	ready, done := filepath.Join(dir, "ready"), filepath.Join(dir, "done")
	switch {
	case !plugintest.InChild(t):
	case os.Getenv(roleEnv) == "holder":
		_, err := pjrt.Open(path)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(ready, nil, 0o600))
		for range 6000 { // loading can be slow on a busy machine
			if _, err := os.Stat(done); err == nil {
				return
			}
			time.Sleep(50 * time.Millisecond)
		}
		return
	default:
		_, err := system.Open(context.Background(), system.Options{Plugin: path})
		t.Logf("second process: %v", err)
		var locked *system.LockedError
		require.ErrorAs(t, err, &locked)
		require.NotEmpty(t, locked.Holders)
		return
	}
	dir = t.TempDir()
	env := []string{dirEnv + "=" + dir}
	for _, pair := range plugintest.TPUEnv() {
		if !strings.HasPrefix(pair, "ALLOW_MULTIPLE_LIBTPU_LOAD") {
			env = append(env, pair)
		}
	}
	env = slices.Clip(env) // each child appends its own
	type outcome struct {
		out string
		err error
	}
	holder := make(chan outcome, 1)
	go func() {
		out, err := plugintest.Child(t, append(env, roleEnv+"=holder")...)
		holder <- outcome{out, err}
	}()
	held := func() bool {
		_, err := os.Stat(filepath.Join(dir, "ready"))
		return err == nil
	}
	for !held() && len(holder) == 0 {
		time.Sleep(50 * time.Millisecond)
	}
	if !held() {
		o := <-holder
		t.Skipf("libtpu is held by a process that is not this test's: %v\n%s", o.err, o.out)
	}
	out, err := plugintest.Child(t, append(env, roleEnv+"=second")...)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "done"), nil, 0o600))
	first := <-holder
	require.NoError(t, first.err, first.out)
	require.NoError(t, err, out)
	assert.Contains(t, out, "the TPU is in use: process ")
	assert.Contains(t, out, "/tmp/libtpu_lockfile open")
}
