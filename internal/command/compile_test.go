package command_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gomlx/gomlx/core/graph"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/internal/command"
	"github.com/tpustrategy/tpustrategy/internal/test/plugintest"
	"github.com/tpustrategy/tpustrategy/pjrt"
	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/tpu/system"
)

// slowCompiler compiles, instead of each program, thousands of sorts, which takes more than a minute.
type slowCompiler struct{}

func (slowCompiler) Compile(ctx context.Context, client *pjrt.Client, _ pjrt.Program,
	_ pjrt.CompileOptions) (*pjrt.LoadedExecutable, error) {
	const sorts = 7000
	var b strings.Builder
	b.WriteString("module @long {\nfunc.func public @main(%v0: tensor<33x33xf32>) -> tensor<33x33xf32> {\n")
	for i := range sorts {
		fmt.Fprintf(&b, `%%v%d = "stablehlo.sort"(%%v%d) ({
^bb0(%%a: tensor<f32>, %%b: tensor<f32>):
  %%c = stablehlo.compare LT, %%a, %%b : (tensor<f32>, tensor<f32>) -> tensor<i1>
  stablehlo.return %%c : tensor<i1>
}) {dimension = 0 : i64} : (tensor<33x33xf32>) -> tensor<33x33xf32>
`, i+1, i)
	}
	fmt.Fprintf(&b, "return %%v%d : tensor<33x33xf32>\n}\n}\n", sorts)
	time.AfterFunc(500*time.Millisecond, func() { fmt.Println("compiling") })
	return client.Compile(ctx, pjrt.Program{Code: []byte(b.String()), Trusted: true}, pjrt.CompileOptions{})
}

// step is a typical program, which closes its objects with defer.
func step(ctx context.Context) (err error) {
	sys, err := system.Open(ctx, system.Options{CPUDevices: 2})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, sys.Close()) }()
	strat, err := strategy.New(sys, strategy.Options{Compiler: slowCompiler{}})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, strat.Close()) }()
	_, err = strat.Function(func(_ *strategy.ReplicaContext, in []*graph.Node) []*graph.Node {
		return []*graph.Node{graph.AddScalar(in[0], 1)}
	}, strategy.FunctionOptions{}).Run(ctx, float32(1))
	return err
}

// TestCompilingProgram runs in a child process, which TestSignalStopsCompilation interrupts.
func TestCompilingProgram(t *testing.T) {
	switch os.Getenv("COMMAND_TEST_PROGRAM") {
	case "":
		t.Skip("run by TestSignalStopsCompilation")
	case "command":
		os.Exit(command.Main(func(ctx context.Context, _ []string, _, stderr io.Writer) int {
			if err := step(ctx); ctx.Err() == nil {
				fmt.Fprintln(stderr, "not interrupted:", err)
				return command.Failed
			} else if left := errors.Join(err); !errors.Is(left, context.Cause(ctx)) {
				fmt.Fprintln(stderr, "another error:", err)
				return command.Failed
			}
			return command.Cause(ctx).Code()
		}))
	case "deaf": // what it does takes no notice of the context
		os.Exit(command.Main(func(context.Context, []string, io.Writer, io.Writer) int {
			_ = step(context.Background())
			return command.OK
		}))
	case "standard": // as package strategy's documentation says
		ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
		defer stop()
		err := step(ctx)
		if ctx.Err() != nil {
			if strings.HasPrefix(context.Cause(ctx).Error(), syscall.SIGTERM.String()) {
				os.Exit(143)
			}
			os.Exit(130)
		}
		fmt.Fprintln(os.Stderr, "not interrupted:", err)
		os.Exit(1)
	}
}

func TestSignalStopsCompilation(t *testing.T) {
	plugintest.Path(t, "cpu")
	for _, c := range []struct {
		program string
		signal  syscall.Signal
		code    int
	}{{"command", syscall.SIGINT, 130}, {"command", syscall.SIGTERM, 143}, {"deaf", syscall.SIGINT, 130},
		{"standard", syscall.SIGINT, 130}, {"standard", syscall.SIGTERM, 143}} {
		t.Run(fmt.Sprint(c.program, c.code), func(t *testing.T) {
			took := time.Hour
			for try := 0; try < 4 && took >= 3*time.Second; try++ { // another process may hold up any single try
				took = min(took, signaled(t, c.program, c.signal, c.code))
			}
			assert.Less(t, took, 3*time.Second)
		})
	}
}

// signaled returns the time from a signal to the exit of a program that compiles.
func signaled(t *testing.T, program string, s syscall.Signal, code int) time.Duration {
	t.Helper()
	cmd := exec.Command(os.Args[0], "-test.run=^TestCompilingProgram$")
	cmd.Env = append(os.Environ(), "COMMAND_TEST_PROGRAM="+program)
	var said strings.Builder
	cmd.Stderr = &said
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	defer func() { _ = cmd.Process.Kill() }()
	line, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err, said.String())
	require.Equal(t, "compiling\n", line)
	start := time.Now()
	require.NoError(t, cmd.Process.Signal(s))
	_ = cmd.Wait()
	took := time.Since(start)
	require.Equal(t, code, cmd.ProcessState.ExitCode(), said.String())
	return took
}
