package accept

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/tpustrategy/tpustrategy/internal/test/plugintest"
	"github.com/tpustrategy/tpustrategy/internal/test/prochost"
	"github.com/tpustrategy/tpustrategy/tpu/system"
)

// TestMain is a host's process where its environment says so.
func TestMain(m *testing.M) {
	host, here, err := prochost.FromEnviron(os.Getenv)
	if !here {
		goleak.VerifyTestMain(m)
		return
	}
	if err == nil {
		err = asHost(host)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// asHost runs parts as a host, the last of which ends host 1.
func asHost(host prochost.Host) error {
	victim := 1
	report, err := Run(context.Background(), Options{Quick: true, Only: []string{"devices", "donation"}, Kill: &victim,
		Open: func(ctx context.Context, logger *slog.Logger) (*system.System, error) {
			return system.Open(ctx, system.Options{Connect: host.Connect(), Logger: logger})
		}})
	if err != nil {
		return err
	}
	file, err := os.Create(os.Getenv("ACCEPT_FILE"))
	if err != nil {
		return err
	}
	defer file.Close()
	return WriteArchive(file, report)
}

// A host's process ends by SIGKILL, and the other one goes on to a verdict that says what it was told.
func TestAKilledHostIsNamedByTheOthers(t *testing.T) {
	base := plugintest.System(t, 4)
	machine, err := prochost.Listen(base, "unix", filepath.Join(t.TempDir(), "machine"),
		prochost.Options{Patience: 20 * time.Second})
	require.NoError(t, err)
	defer func() { require.NoError(t, machine.Close()) }()
	archive := filepath.Join(t.TempDir(), "0.jsonl.gz")
	var hosts []*exec.Cmd
	for i := range 2 {
		h := machine.Host("killed", i, 2)
		h.Plugin = plugintest.Path(t, "cpu")
		variable, err := h.Environ()
		require.NoError(t, err)
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), variable, "ACCEPT_FILE="+archive)
		if i == 0 {
			cmd.Stderr = os.Stderr
		}
		require.NoError(t, cmd.Start())
		hosts = append(hosts, cmd)
	}
	require.Error(t, hosts[1].Wait())
	assert.Equal(t, syscall.SIGKILL, hosts[1].ProcessState.Sys().(syscall.WaitStatus).Signal())
	require.NoError(t, hosts[0].Wait())
	file, err := os.Open(archive)
	require.NoError(t, err)
	defer file.Close()
	report, err := ReadArchive(file)
	require.NoError(t, err)
	assert.Equal(t, Accepted, report.Verdict, "%v", report.Reasons)
	last := report.Outcomes[len(report.Outcomes)-1]
	assert.Equal(t, killName, last.Part)
	require.Len(t, last.Facts, 1)
	assert.Contains(t, last.Facts[0].Value, "host 1 ended")
	assert.True(t, strings.HasPrefix(last.Facts[0].Value, "after "), last.Facts[0].Value)
}

// Where the runtime does not tell of the end of a host, the wait ends by itself, within the part.
func TestAKilledHostOfWhichNobodyTellsIsAFinding(t *testing.T) {
	victim := 1
	reports := onHosts(t, 4, 2, Options{Only: []string{"devices"}, Kill: &victim, KillSelf: func() {},
		Hooks: TestHooks{TimeLimits: map[string]time.Duration{killName: 2 * time.Second}}})
	assert.Equal(t, WithFindings, reports[0].Verdict, "%v", reports[0].Reasons)
	assert.Contains(t, reports[0].Reasons[0], "host 1 is gone, and the runtime did not say so in 2 s")
}
