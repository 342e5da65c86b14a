package hostfacts_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/internal/hostfacts"
)

// fakeRoot creates files of a fake machine and returns its root.
func fakeRoot(t *testing.T, files map[string]string) string {
	root := t.TempDir()
	for path, content := range files {
		path = filepath.Join(root, path)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, []byte(content), 0o644))
	}
	return root
}

func TestReadAndFindings(t *testing.T) {
	got := hostfacts.ReadFacts(fakeRoot(t, map[string]string{
		"sys/kernel/mm/transparent_hugepage/enabled": "always [madvise] never\n",
		"proc/meminfo":              "MemTotal:       395830432 kB\nMemFree: 1 kB\nMemAvailable:    4194304 kB\n",
		"proc/sys/kernel/osrelease": "6.8.0-1015-gcp\n",
		"proc/self/limits": "Limit                     Soft Limit           Hard Limit           Units\nMax " +
			"locked memory         8388608              8388608              bytes\n",
	}))
	got.Root = false
	assert.Equal(t, hostfacts.Facts{HugePages: "madvise", MemoryBytes: 395830432 << 10, AvailableBytes: 4 << 30,
		Kernel: "6.8.0-1015-gcp", LockedMemory: "8388608"}, got)
	found := got.Findings()
	require.Len(t, found, 3)
	assert.Equal(t,
		"limit of locked memory: 8.0 MiB; the TPU runtime locks the memory that it copies from, and in a pod may not start: "+
			"ulimit -l 68719476736, or in a pod securityContext: {privileged: true}", found[2].String())
	assert.Equal(t,
		"transparent huge pages: madvise; the TPU runtime of v5e and newer starts and stops far slower without them: "+
			`sudo sh -c "echo always > /sys/kernel/mm/transparent_hugepage/enabled"`, found[0].String())
	assert.Contains(t, found[1].String(), "free memory: 4.0 GiB;")

	got.HugePages, got.AvailableBytes, got.CanExceedLockedMemory = "always", 64<<30, true
	assert.Empty(t, got.Findings())
	got = hostfacts.ReadFacts(fakeRoot(t, map[string]string{"proc/self/limits": "Max locked memory 65536 65536 bytes\n",
		"proc/self/status": "Name: x\nCapEff:\t00000000a80425fb\n"}))
	assert.False(t, got.CanExceedLockedMemory, "what a container's root has by default")
	assert.Len(t, got.Findings(), 1)
	got = hostfacts.ReadFacts(fakeRoot(t,
		map[string]string{"proc/self/limits": "Max locked memory unlimited unlimited bytes\n",
			"proc/self/status": "CapEff:\t0000000000004000\n"}))
	assert.True(t, got.CanExceedLockedMemory)
	assert.Empty(t, got.Findings())
}

func TestReadOfEmptyRoot(t *testing.T) {
	got := hostfacts.ReadFacts(fakeRoot(t,
		map[string]string{"proc/meminfo": "MemAvailable:\nMemTotal: x kB\nMemAvailable: -1 kB\n",
			"lib/x86_64-linux-gnu/libc.so.6": "no ELF"}))
	got.Root = false
	assert.Equal(t, hostfacts.Facts{}, got)
	assert.Empty(t, got.Findings())
}

func TestReadThisMachine(t *testing.T) {
	facts := hostfacts.ReadFacts("")
	assert.NotEmpty(t, facts.Kernel)
	assert.Positive(t, facts.AvailableBytes)
	program, err := os.Executable()
	require.NoError(t, err)
	needs, err := hostfacts.ReadRequirements(program)
	require.NoError(t, err)
	assert.NotEmpty(t, needs.Machine)
	if needs.CLibrary == "" {
		assert.True(t, needs.Static || facts.CLibrary == "", "%+v", needs)
		return
	}
	assert.False(t, hostfacts.IsOlderVersion(facts.CLibrary, needs.CLibrary),
		"a program that runs needs no newer C library (%s) than there is (%s)", needs.CLibrary, facts.CLibrary)
}

func TestNeedsOfOtherFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "script")
	require.NoError(t, os.WriteFile(path, []byte("#!/bin/sh\necho no ELF file\n"), 0o755))
	_, err := hostfacts.ReadRequirements(path)
	assert.ErrorIs(t, err, hostfacts.ErrNotELF)
	_, err = hostfacts.ReadRequirements(path + ".gone")
	assert.ErrorIs(t, err, os.ErrNotExist)
}

func TestOlder(t *testing.T) {
	for _, c := range []struct {
		a, b string
		want bool
	}{
		{"", "2.2.5", true}, {"2.9", "2.34", true}, {"2.34", "2.9", false}, {"2.34", "2.34", false},
		{"2.3", "2.3.4", true}, {"2.34", "PRIVATE", false}, {"", "", false},
	} {
		assert.Equal(t, c.want, hostfacts.IsOlderVersion(c.a, c.b), "%q before %q", c.a, c.b)
	}
}
