package cache_test

import (
	"bytes"
	"io/fs"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/internal/test/plugintest"
	"github.com/tpustrategy/tpustrategy/pjrt"
	"github.com/tpustrategy/tpustrategy/pjrt/cache"
)

// setHome sets the home directory of the test to a temporary directory.
func setHome(t *testing.T) (home string) {
	t.Helper()
	home = t.TempDir()
	t.Setenv("HOME", home)
	t.Setenv("XDG_CONFIG_HOME", "")
	return home
}

func openFails(t *testing.T, dir string, o cache.Options, words ...string) {
	t.Helper()
	_, err := cache.Open(dir, o)
	var path *pjrt.PathError
	require.ErrorAs(t, err, &path)
	for _, word := range words {
		require.ErrorContains(t, err, word)
	}
}

func TestOpenRejectsDirectoryThatOthersCanWriteTo(t *testing.T) {
	setHome(t)
	parent := t.TempDir()
	dir := filepath.Join(parent, "programs")
	require.NoError(t, os.Mkdir(dir, 0o755))
	for _, path := range []string{dir, parent} {
		require.NoError(t, os.Chmod(path, 0o777))
		openFails(t, dir, cache.Options{}, path, "mode 0777", "chmod o-w "+path)
		_, err := cache.Open(dir, cache.Options{AllowSharedDir: true})
		require.NoError(t, err)
		require.NoError(t, os.Chmod(path, 0o755))
	}
	require.NoError(t, os.Chmod(dir, 0o777|fs.ModeSticky))
	openFails(t, dir, cache.Options{}, "chmod o-w")
	require.NoError(t, os.Chmod(dir, 0o755))
	if os.Geteuid() == 0 {
		require.NoError(t, os.Chown(dir, 4242, 4242))
		openFails(t, dir, cache.Options{}, "owner uid 4242")
		require.NoError(t, os.Chown(dir, 0, 0))
	}
	_, err := cache.Open(dir, cache.Options{})
	require.NoError(t, err)
	openFails(t, "gs://bucket/programs", cache.Options{}, "URL")
	require.NoDirExists(t, "gs:")
}

// TestForgedEntriesDoNotRun replaces an entry by entries that another user created or that were
// modified.
func TestForgedEntriesDoNotRun(t *testing.T) {
	client := plugintest.CPU(t, 1)
	key := bytes.Repeat([]byte("ours"), 8)
	dir, theirs := t.TempDir(), t.TempDir()
	mine := open(t, dir, cache.Options{SigningKey: key})
	compileAndRun(t, mine, client, 1)
	path := entries(t, dir)[0]
	whole, err := os.ReadFile(path)
	require.NoError(t, err)

	attacker := open(t, theirs, cache.Options{SigningKey: bytes.Repeat([]byte("evil"), 8)})
	compileAndRun(t, attacker, client, 666)
	forged, err := os.ReadFile(entries(t, theirs)[0])
	require.NoError(t, err)
	require.NotEqual(t, filepath.Base(path), filepath.Base(entries(t, theirs)[0]))
	compileAndRun(t, mine, client, 2)
	var other []byte // a valid entry for another program
	for _, name := range entries(t, dir) {
		if name != path {
			other, err = os.ReadFile(name)
			require.NoError(t, err)
		}
	}
	const head, payload = 22, 22 + 64 + 8
	copies := map[string][]byte{
		"another key's":                    forged,
		"another program's":                other,
		"another key's under our key":      append(append([]byte{}, whole[:head+32]...), forged[head+32:]...),
		"another program under our header": append(append([]byte{}, whole[:payload]...), forged[payload:]...),
		"another's program under ours":     append(append([]byte{}, whole[:head+32]...), other[head+32:]...),
		"the signature left out, a sum put": append(append(append(append([]byte{}, whole[:head+32]...),
			bytes.Repeat([]byte{0}, 32)...), forged[head+64:payload]...), forged[payload:]...),
	}
	for i := range 40 {
		rng := rand.New(rand.NewPCG(uint64(i), 3))
		changed := bytes.Clone(whole)
		changed[payload+rng.IntN(len(changed)-payload)] ^= byte(1 + rng.IntN(255))
		copies[string(rune('A'+i))+" changed"] = changed
	}
	for name, data := range copies {
		require.NoError(t, os.WriteFile(path, data, 0o600))
		var log bytes.Buffer
		c := open(t, dir, cache.Options{SigningKey: key, Logger: slog.New(slog.NewTextHandler(&log, nil))})
		compileAndRun(t, c, client, 1)
		assert.Equal(t, cache.Stats{Misses: 1, Corrupt: 1}, c.Stats(), name)
		assert.Contains(t, log.String(), "corrupt entry", name)
	}
}

func TestEntryThatIsNotARegularFile(t *testing.T) {
	client := plugintest.CPU(t, 1)
	setHome(t)
	dir := t.TempDir()
	c := open(t, dir, cache.Options{})
	compileAndRun(t, c, client, 1)
	path := entries(t, dir)[0]
	kept := filepath.Join(t.TempDir(), "kept")
	require.NoError(t, os.Rename(path, kept))
	for name, put := range map[string]func() error{
		"a pipe":      func() error { return syscall.Mkfifo(path, 0o600) },
		"a link":      func() error { return os.Symlink(kept, path) },
		"a device":    func() error { return os.Symlink("/dev/zero", path) },
		"a directory": func() error { return os.Mkdir(path, 0o700) },
		"too large": func() error {
			f, err := os.Create(path)
			if err != nil {
				return err
			}
			defer f.Close()
			return f.Truncate(1 << 40)
		},
	} {
		_ = os.Remove(path)
		require.NoError(t, put(), name)
		done := make(chan struct{})
		go func() {
			defer close(done)
			before := c.Stats()
			compileAndRun(t, c, client, 1)
			assert.Equal(t, before.Corrupt+1, c.Stats().Corrupt, name)
			assert.Equal(t, before.Misses+1, c.Stats().Misses, name)
			compileAndRun(t, c, client, 1)
			assert.Equal(t, before.Hits+1, c.Stats().Hits, "%s was replaced", name)
		}()
		select {
		case <-done:
		case <-time.After(20 * time.Second):
			t.Fatalf("%s hangs", name)
		}
	}
	require.FileExists(t, kept)
}
