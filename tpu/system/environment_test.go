package system_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/internal/test/plugintest"
	"github.com/tpustrategy/tpustrategy/tpu/system"
)

// asProgram marks a process that TestMain makes a program: it describes the slice of that name,
// says so, and holds it until its input ends.
const asProgram = "TPUSTRATEGY_TEST_DESCRIBE"

func TestMain(m *testing.M) {
	if name := os.Getenv(asProgram); name != "" {
		slice, err := system.Describe(context.Background(), name, system.DescribeOptions{})
		if err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		fmt.Println(slice.Facts().Devices, "devices")
		_, _ = bufio.NewReader(os.Stdin).ReadByte()
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// bare is an environment with nothing of a TPU in it.
func bare(extra ...string) []string {
	var env []string
	for _, kv := range os.Environ() {
		if !strings.HasPrefix(kv, "TPU_") && !strings.HasPrefix(kv, "ALLOW_MULTIPLE") {
			env = append(env, kv)
		}
	}
	return append(env, extra...)
}

func TestSlicesAreDescribedSideBySideInABareEnvironment(t *testing.T) {
	path := plugintest.Libtpu(t)
	start := time.Now()
	want := map[string]string{"v4-16": "8 devices", "v5p-384": "192 devices"}
	for name, devices := range want {
		cmd := exec.Command(os.Args[0])
		cmd.Env = bare(asProgram+"="+name, "TPUSTRATEGY_TPU_PLUGIN="+path)
		stdin, err := cmd.StdinPipe()
		require.NoError(t, err)
		stdout, err := cmd.StdoutPipe()
		require.NoError(t, err)
		require.NoError(t, cmd.Start())
		defer func() { // both hold libtpu until here
			assert.NoError(t, stdin.Close())
			assert.NoError(t, cmd.Wait())
		}()
		line, err := bufio.NewReader(stdout).ReadString('\n')
		require.NoError(t, err)
		assert.Equal(t, devices+"\n", line)
	}
	assert.Less(t, time.Since(start), time.Minute, "the network is not asked")
}
