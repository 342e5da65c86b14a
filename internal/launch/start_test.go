package launch_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/internal/command"
	"github.com/tpustrategy/tpustrategy/internal/launch"
)

// host is a folder with what a script puts on a machine, and a program in bash that does what its
// arguments say.
type host struct {
	t   *testing.T
	dir string
}

func newHost(t *testing.T) *host {
	text, err := job(t, "v5litepod-16", launch.TPUVM).Text(launch.Script)
	require.NoError(t, err)
	h := &host{t, t.TempDir()}
	for file, mark := range map[string]string{"start.sh": "END_OF_START", "keep.sh": "END_OF_KEEP"} {
		_, part, ok := strings.Cut(text, "<<'"+mark+"'\n")
		require.True(t, ok)
		part, _, ok = strings.Cut(part, "\n"+mark+"\n")
		require.True(t, ok)
		require.NoError(t, os.WriteFile(filepath.Join(h.dir, file), []byte(part+"\n"), 0o600))
	}
	// A copy of bash, so that its file is in the folder, as a program's is.
	bash, err := exec.LookPath("bash")
	require.NoError(t, err)
	data, err := os.ReadFile(bash)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(h.dir, "multihost"), data, 0o700))
	t.Cleanup(func() { _ = exec.Command("sh", filepath.Join(h.dir, "start.sh"), "stop").Run() })
	return h
}

// call starts start.sh; what the connection shows goes to the buffer.
func (h *host) call(words ...string) (*exec.Cmd, *bytes.Buffer) {
	cmd := exec.Command("sh", append([]string{filepath.Join(h.dir, "start.sh")}, words...)...)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	require.NoError(h.t, cmd.Start())
	return cmd, &out
}

// run is a call with a program, and the code that the connection ends with.
func (h *host) run(round, program string, arguments ...string) (int, string) {
	cmd, out := h.call(append([]string{round, "-c", program, "program"}, arguments...)...)
	_ = cmd.Wait()
	return cmd.ProcessState.ExitCode(), out.String()
}

func (h *host) appears(file string) {
	h.t.Helper()
	require.Eventually(h.t, func() bool { _, err := os.Stat(filepath.Join(h.dir, file)); return err == nil },
		20*time.Second, 5*time.Millisecond)
}

func TestAMachineSaysHowTheProgramEnded(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	for i, c := range []struct {
		program string
		code    int
	}{
		{"echo one; exit 0", 0}, {"exit 75", 75}, {"exit 69", 69}, {"exit 3", 3},
		{"exit 1", 1}, {"kill -ABRT $$", 134}, {"kill -SEGV $$", 139}, // before a first checkpoint
		{`echo 10 >"$TPUSTRATEGY_SAVED"; exit 1`, 76}, {"kill -ABRT $$", 77}, {"exit 2", 77},
		{`echo 20 >"$TPUSTRATEGY_SAVED"; kill -SEGV $$`, 76},
		{"exit 3", 3}, {"exit 75", 75},
	} {
		code, said := h.run(string(rune('a'+i)), c.program)
		assert.Equal(t, c.code, code, "%s: %s", c.program, said)
	}
}

// TestAClosedConnectionLeavesTheProgram: neither SIGHUP nor SIGPIPE reaches it, and the call that
// gcloud makes again follows it to its end, with its code.
func TestAClosedConnectionLeavesTheProgram(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	program := `trap 'echo hangup' HUP; echo begun; : >begun; until [ -f go ]; do sleep 0.05; done; echo still there; ` +
		`echo 5 >"$TPUSTRATEGY_SAVED"; exit 75`
	cmd, out := h.call("1", "-c", program)
	h.appears("begun")
	require.NoError(t, syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL))
	_ = cmd.Wait()
	assert.NotContains(t, out.String(), "hangup")
	again, out := h.call("1", "-c", program) // while it runs
	require.NoError(t, os.WriteFile(filepath.Join(h.dir, "go"), nil, 0o600))
	_ = again.Wait()
	assert.Equal(t, 75, again.ProcessState.ExitCode(), out)
	assert.Contains(t, out.String(), "the connection was lost")
	assert.Contains(t, out.String(), "still there")
	code, said := h.run("1", program) // after its end
	assert.Equal(t, 75, code)
	assert.Equal(t, 1, strings.Count(said, "begun"), "it ran once: %s", said)
}

// TestAnEarlierRoundIsToldToEnd: by SIGTERM, so that it can save, before it is killed.
func TestAnEarlierRoundIsToldToEnd(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	first, _ := h.call("1", "-c", `trap 'echo saved >saved.by.term; exit 75' TERM; : >begun; while :; do sleep 0.05; done`)
	h.appears("begun")
	code, said := h.run("2", `cat saved.by.term`)
	assert.Zero(t, code, said)
	assert.Equal(t, "saved\n", said)
	_ = first.Wait()
	before, err := os.ReadFile(filepath.Join(h.dir, "log.before"))
	require.NoError(t, err)
	assert.Empty(t, before)
}

func TestAMachineThatStartedAnewSaysSo(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	code, _ := h.run("1", "echo hello")
	assert.Zero(t, code)
	require.NoError(t, os.WriteFile(filepath.Join(h.dir, "boot"), []byte("another\n"), 0o600))
	code, said := h.run("1", "echo hello")
	assert.Equal(t, command.Unavailable, code)
	assert.Contains(t, said, "the machine was started anew")
}

func TestTheLogOfAMachineIsThere(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	code, _ := h.run("1", "echo the last word; exit 3")
	assert.Equal(t, 3, code)
	cmd, out := h.call("log")
	require.NoError(t, cmd.Wait())
	assert.Equal(t, "the last word\n", out.String())
}
