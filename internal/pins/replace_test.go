package pins

import (
	"crypto/sha256"
	"encoding/hex"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestTheInstallerReplacesWhatIsNotWhole runs the installer with a small library of its own in
// place of the pinned ones, and a Python that unpacks it.
func TestTheInstallerReplacesWhatIsNotWhole(t *testing.T) {
	pin, err := Find("cpu", runtime.GOARCH)
	if err != nil {
		t.Skip(err)
	}
	const library = "the library\n"
	here, bin, cache := t.TempDir(), t.TempDir(), t.TempDir()
	hash := sha256.Sum256([]byte(library))
	rows := strings.ReplaceAll(tableText, pin.LibrarySHA256, hex.EncodeToString(hash[:]))
	require.NoError(t, os.WriteFile(filepath.Join(here, "pins.tsv"), []byte(rows), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(here, "install.sh"), []byte(InstallScript), 0o700))
	fetched := filepath.Join(here, "fetched")
	content := filepath.Join(here, "content")
	python := "#!/bin/sh\ncase $1 in\n-m) echo \"$3\" >>" + fetched + " ;;\n-) cat " + content +
		" >\"$3/$(basename \"$4\")\" ;;\nesac\n"
	require.NoError(t, os.WriteFile(filepath.Join(bin, "python3"), []byte(python), 0o755))
	path := pin.LibraryPath(cache)
	install := func(t *testing.T) (downloads int, stdout, stderr string, err error) {
		t.Helper()
		_ = os.Remove(fetched)
		cmd := exec.Command("sh", filepath.Join(here, "install.sh"), "cpu")
		cmd.Env = []string{"XDG_CACHE_HOME=" + cache, "PATH=" + bin + ":" + os.Getenv("PATH")}
		var errs strings.Builder
		cmd.Stderr = &errs
		out, err := cmd.Output()
		log, _ := os.ReadFile(fetched)
		return strings.Count(string(log), "download"), string(out), errs.String(), err
	}
	require.NoError(t, os.WriteFile(content, []byte(library), 0o600))

	for _, test := range []struct {
		name string
		old  *string // nil where there is no file
	}{
		{"nothing there", nil}, {"cut short", new("the lib")}, {"empty", new("")}, {"changed", new("the l1brary\n")},
		{"longer", new(library + "x")},
	} {
		t.Run(test.name, func(t *testing.T) {
			require.NoError(t, os.RemoveAll(cache))
			if test.old != nil {
				require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
				require.NoError(t, os.WriteFile(path, []byte(*test.old), 0o644))
			}
			downloads, stdout, stderr, err := install(t)
			require.NoError(t, err, stderr)
			assert.Equal(t, 1, downloads)
			assert.Equal(t, path+"\n", stdout)
			assert.Equal(t, test.old != nil, strings.Contains(stderr, path+" is damaged"), stderr)
			got, err := os.ReadFile(path)
			require.NoError(t, err)
			assert.Equal(t, library, string(got))
			installed := pin
			installed.LibrarySHA256 = hex.EncodeToString(hash[:])
			requireRecord := func() {
				t.Helper()
				info, err := os.Stat(path)
				require.NoError(t, err)
				text, err := os.ReadFile(path + VerifiedSuffix)
				require.NoError(t, err)
				assert.Equal(t, installed.VerifiedRecord(info)+"\n", string(text))
			}
			requireRecord()
			require.NoError(t, os.Remove(path+VerifiedSuffix))
			downloads, stdout, stderr, err = install(t)
			require.NoError(t, err, stderr)
			requireRecord()
			assert.Zero(t, downloads, "a second run finds it whole")
			assert.Equal(t, path+"\n", stdout)
			assert.Empty(t, stderr)
			left, err := os.ReadDir(filepath.Dir(filepath.Dir(path)))
			require.NoError(t, err)
			assert.Len(t, left, 1, "nothing else stays behind")
		})
	}

	t.Run("the new one does not unpack whole", func(t *testing.T) {
		require.NoError(t, os.WriteFile(path, []byte("old"), 0o644))
		require.NoError(t, os.WriteFile(content, []byte("the"), 0o600))
		_, stdout, stderr, err := install(t)
		require.Error(t, err)
		assert.Empty(t, stdout)
		assert.Contains(t, stderr, "did not unpack whole")
		got, err := os.ReadFile(path)
		require.NoError(t, err)
		assert.Equal(t, "old", string(got), "what was there stays")
	})
}

// The programs that a plugin calls lie where it looks for them, and are put there again if they are gone.
func TestTheInstallerPutsToolsBesideTheirPlugin(t *testing.T) {
	pin, err := Find("cuda", runtime.GOARCH)
	if err != nil {
		t.Skip(err)
	}
	tools, err := Find("cuda-tools", runtime.GOARCH)
	require.NoError(t, err)
	here, bin, cache := t.TempDir(), t.TempDir(), t.TempDir()
	hash := sha256.Sum256([]byte("a file\n"))
	rows := strings.NewReplacer(pin.LibrarySHA256, hex.EncodeToString(hash[:]), tools.LibrarySHA256,
		hex.EncodeToString(hash[:])).Replace(tableText)
	require.NoError(t, os.WriteFile(filepath.Join(here, "pins.tsv"), []byte(rows), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(here, "install.sh"), []byte(InstallScript), 0o700))
	fetched := filepath.Join(here, "fetched")
	python := "#!/bin/sh\ncase $1 in\n-m) echo \"$3\" >>" + fetched +
		" ;;\n-) shift 2; out=$1; shift; for m; do echo 'a file' >\"$out/$(basename \"$m\")\"; done ;;\nesac\n"
	require.NoError(t, os.WriteFile(filepath.Join(bin, "python3"), []byte(python), 0o755))
	install := func() (downloads int) {
		_ = os.Remove(fetched)
		cmd := exec.Command("sh", filepath.Join(here, "install.sh"), "cuda")
		cmd.Env = []string{"XDG_CACHE_HOME=" + cache, "PATH=" + bin + ":" + os.Getenv("PATH")}
		var errs strings.Builder
		cmd.Stderr = &errs
		out, err := cmd.Output()
		require.NoError(t, err, errs.String())
		assert.Equal(t, pin.LibraryPath(cache)+"\n", string(out))
		log, _ := os.ReadFile(fetched)
		return strings.Count(string(log), "download")
	}
	assert.Equal(t, 2, install())
	assembler := filepath.Join(filepath.Dir(pin.LibraryPath(cache)), "..", "nvidia", "cuda_nvcc", "bin", "ptxas")
	info, err := os.Stat(assembler)
	require.NoError(t, err)
	assert.NotZero(t, info.Mode()&0o100, "it can be run")
	assert.FileExists(t, filepath.Join(filepath.Dir(assembler), "..", "nvvm", "libdevice", "libdevice.10.bc"))
	assert.Zero(t, install(), "a second run finds all whole")
	require.NoError(t, os.Remove(assembler))
	assert.Equal(t, 2, install())
	assert.FileExists(t, assembler)
}
