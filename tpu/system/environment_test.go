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

// describeVariable makes TestMain describe the slice with this name, print a line, and keep libtpu
// loaded until the end of standard input.
const describeVariable = "TPUSTRATEGY_TEST_DESCRIBE"

func TestMain(m *testing.M) {
	if name := os.Getenv(describeVariable); name != "" {
		slice, err := system.Describe(context.Background(), name, system.DescribeOptions{})
		if err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		fmt.Println(slice.Info().Devices, "devices")
		_, _ = bufio.NewReader(os.Stdin).ReadByte()
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// cleanEnvironment returns an environment without TPU variables.
func cleanEnvironment(extra ...string) []string {
	var env []string
	for _, kv := range os.Environ() {
		if !strings.HasPrefix(kv, "TPU_") && !strings.HasPrefix(kv, "ALLOW_MULTIPLE") {
			env = append(env, kv)
		}
	}
	return append(env, extra...)
}

func TestProcessesDescribeSlicesConcurrently(t *testing.T) {
	path := plugintest.Libtpu(t)
	start := time.Now()
	want := map[string]string{"v4-16": "8 devices", "v5p-384": "192 devices"}
	for name, devices := range want {
		cmd := exec.Command(os.Args[0])
		cmd.Env = cleanEnvironment(describeVariable+"="+name, "TPUSTRATEGY_TPU_PLUGIN="+path)
		stdin, err := cmd.StdinPipe()
		require.NoError(t, err)
		stdout, err := cmd.StdoutPipe()
		require.NoError(t, err)
		require.NoError(t, cmd.Start())
		defer func() { // both processes have libtpu loaded until here
			assert.NoError(t, stdin.Close())
			assert.NoError(t, cmd.Wait())
		}()
		line, err := bufio.NewReader(stdout).ReadString('\n')
		require.NoError(t, err)
		assert.Equal(t, devices+"\n", line)
	}
	assert.Less(t, time.Since(start), time.Minute, "the network is not asked")
}
