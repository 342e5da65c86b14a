package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// slice.sh is run with stand-ins for gcloud and go that write down what they are told.
func TestTheScriptRunsTheCommandOnEveryHostAndDeletesTheSlice(t *testing.T) {
	for name, c := range map[string]struct {
		env  []string
		fail string // a word of the gcloud call that fails
		want []string
		ok   bool
	}{
		"all goes well": {ok: true, want: []string{"create digits", "scp", "ssh digits --worker=all", "delete digits --quiet"}},
		"a host fails":  {fail: "ssh", want: []string{"create digits", "scp", "ssh digits --worker=all", "delete digits --quiet"}},
		"kept":          {env: []string{"KEEP=1", "NAME=mine"}, ok: true, want: []string{"create mine", "scp", "ssh mine --worker=all"}},
		"no capacity":   {fail: "create", want: []string{"create digits"}},
	} {
		t.Run(name, func(t *testing.T) {
			bin, log := t.TempDir(), filepath.Join(t.TempDir(), "calls")
			stub := "#!/bin/sh\necho \"$@\" >>" + log + "\ncase \"$4\" in \"" + c.fail + "\") exit 1;; esac\n"
			require.NoError(t, os.WriteFile(filepath.Join(bin, "gcloud"), []byte(stub), 0o755))
			require.NoError(t, os.WriteFile(filepath.Join(bin, "go"), []byte("#!/bin/sh\n"), 0o755))
			cmd := exec.Command("./slice.sh", "-steps", "9")
			cmd.Env = append(os.Environ(), append(c.env, "PATH="+bin+":"+os.Getenv("PATH"), "PROJECT=p", "ZONE=z", "LIBTPU=/lib/libtpu.so")...)
			out, err := cmd.CombinedOutput()
			assert.Equal(t, c.ok, err == nil, "%v: %s", err, out)
			data, err := os.ReadFile(log)
			require.NoError(t, err)
			lines := strings.Split(strings.TrimSpace(string(data)), "\n")
			require.Len(t, lines, len(c.want), "%s", data)
			for i, want := range c.want {
				assert.Contains(t, lines[i], "compute tpus tpu-vm "+want)
				assert.Contains(t, lines[i], "--project=p --zone=z")
			}
			if len(lines) > 2 {
				assert.Contains(t, lines[2], "TPU_LIBRARY_PATH=$HOME/libtpu.so ./multihost -slice -v -logical 1 -steps 9")
			}
		})
	}
	out, err := exec.Command("./slice.sh").CombinedOutput()
	assert.Error(t, err)
	assert.Contains(t, string(out), "set PROJECT")
}
