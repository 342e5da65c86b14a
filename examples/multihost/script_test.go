package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/fit/interrupt"
	"github.com/tpustrategy/tpustrategy/fit/watchdog"
	"github.com/tpustrategy/tpustrategy/internal/hostfacts"
	"github.com/tpustrategy/tpustrategy/internal/launch"
	"github.com/tpustrategy/tpustrategy/tpu"
)

// The files here are what tpustrategy launch prints; their first lines have the command.
func TestTheFilesAreWhatLaunchPrints(t *testing.T) {
	slice, err := tpu.ParseAccelerator("v5litepod-16")
	require.NoError(t, err)
	const image = "REGION-docker.pkg.dev/PROJECT/REPOSITORY/multihost:latest"
	for file, c := range map[string]struct {
		on      launch.Service
		part    launch.Document
		image   string
		command string
	}{
		"slice.sh": {launch.TPUVM, launch.Script, "", "tpustrategy launch v5litepod-16 --on tpu-vm --dry-run"},
		"slice.yaml": {launch.GKE, launch.Manifest, image,
			"tpustrategy launch v5litepod-16 --on gke --part manifest --image " + image + " --dry-run"},
		"Dockerfile": {launch.GKE, launch.Dockerfile, image,
			"tpustrategy launch v5litepod-16 --on gke --part dockerfile --image " + image + " --dry-run"},
	} {
		want, err := launch.Job{Slice: slice, Slices: 1, On: c.on, Image: c.image, Program: "./examples/multihost",
			Restarts:  10,
			Arguments: []string{"-slice", "-v", "-logical", "1", "-wait", "10m"}, Command: c.command}.Text(c.part)
		require.NoError(t, err)
		got, err := os.ReadFile(file)
		require.NoError(t, err)
		assert.Equal(t, want, string(got), "go run ./cmd/%s >examples/multihost/%s writes it anew", c.command, file)
	}
}

// The scripts restart a program after the exit codes that the packages define.
func TestTheScriptsKnowTheExitCodes(t *testing.T) {
	script, err := os.ReadFile("slice.sh")
	require.NoError(t, err)
	assert.Contains(t, string(script), fmt.Sprintf("%d) say \"interrupted, and saved\"", interrupt.ExitCode))
	assert.Contains(t, string(script), fmt.Sprintf("%d) say \"a host did not answer", watchdog.ExitCode))
	manifest, err := os.ReadFile("slice.yaml")
	require.NoError(t, err)
	assert.Contains(t, string(manifest), fmt.Sprintf("values: [%d]", interrupt.ExitCode))
}

// A program that is built on this machine starts on the oldest image, or the script reports that it
// would not. Both check the version of the C library that the program needs.
func TestTheProgramStartsOnTheOldestImage(t *testing.T) {
	if testing.Short() {
		t.Skip("builds the program")
	}
	program := filepath.Join(t.TempDir(), "multihost")
	out, err := exec.Command("go", "build", "-ldflags=-w", "-o", program, ".").CombinedOutput()
	require.NoError(t, err, "%s", out)
	needs, err := hostfacts.ReadRequirements(program)
	require.NoError(t, err)
	assert.NotEmpty(t, needs.CLibrary, "it is linked against a C library")
	oldest := "2.99"
	for _, m := range launch.AllMachines() {
		if hostfacts.IsOlderVersion(m.CLibrary, oldest) {
			oldest = m.CLibrary
		}
	}
	assert.Equal(t, "2.35", oldest)
	if hostfacts.IsOlderVersion(oldest, needs.CLibrary) {
		t.Logf("built here, the program needs C library %s and the oldest image has %s: the script refuses to rent for it",
			needs.CLibrary, oldest)
	}
	grep, err := exec.Command("bash", "-c", `grep -aoE 'GLIBC_2\.[0-9]+' "$1" | sort -Vu | tail -n 1`, "bash",
		program).Output()
	require.NoError(t, err)
	assert.Equal(t, "GLIBC_"+needs.CLibrary+"\n", string(grep), "the script reads the same as debug/elf")
}
