package worker_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/tpustrategy/tpustrategy/internal/test/plugintest"
	"github.com/tpustrategy/tpustrategy/pjrt"
	"github.com/tpustrategy/tpustrategy/pjrt/worker"
)

// bytecode returns a training step with a loop, a sort, products and reductions, which JAX
// exported.
func bytecode(t *testing.T) []byte {
	t.Helper()
	code, err := os.ReadFile("testdata/step.mlirbc")
	require.NoError(t, err)
	return code
}

func TestWorkerCompilesUntrustedBytecode(t *testing.T) {
	ctx := context.Background()
	client := plugintest.CPU(t, 1)
	program := pjrt.Program{Code: bytecode(t)}
	_, err := client.Compile(ctx, program, pjrt.CompileOptions{})
	require.ErrorIs(t, err, pjrt.ErrUntrusted)
	require.ErrorContains(t, err, "pjrt/worker")
	var ours *pjrt.CompileError
	require.ErrorAs(t, err, &ours)

	sound := program
	sound.Trusted = true
	trusted, err := client.Compile(ctx, sound, pjrt.CompileOptions{})
	require.NoError(t, err)
	require.NoError(t, trusted.Close())
	x, err := newCompiler(t, worker.Options{}).Compile(ctx, client, program, pjrt.CompileOptions{})
	require.NoError(t, err)
	require.NoError(t, x.Close())
}

func TestWorkerCompilesUntrustedHLO(t *testing.T) {
	ctx := context.Background()
	client := plugintest.CPU(t, 1)
	program := pjrt.Program{Code: hloModule("add", ""), Format: pjrt.FormatHLO}
	_, err := client.Compile(ctx, program, pjrt.CompileOptions{})
	require.ErrorIs(t, err, pjrt.ErrUntrusted)
	sound := program
	sound.Trusted = true
	trusted, err := client.Compile(ctx, sound, pjrt.CompileOptions{})
	require.NoError(t, err)
	require.NoError(t, trusted.Close())

	c := newCompiler(t, worker.Options{})
	x, err := c.Compile(ctx, client, program, pjrt.CompileOptions{})
	require.NoError(t, err)
	require.NoError(t, x.Close())
	_, err = c.Compile(ctx, client, pjrt.Program{Code: hloModule("custom-call", "TopK"), Format: pjrt.FormatHLO},
		pjrt.CompileOptions{})
	var died *worker.Error
	require.ErrorAs(t, err, &died, "this program aborts the compiler")
}

// hloModule returns a serialized HloModuleProto with one operation on a matrix.
func hloModule(opcode, target string) []byte {
	number := func(b []byte, n protowire.Number, v uint64) []byte {
		return protowire.AppendVarint(protowire.AppendTag(b, n, protowire.VarintType), v)
	}
	part := func(b []byte, n protowire.Number, v []byte) []byte {
		return protowire.AppendBytes(protowire.AppendTag(b, n, protowire.BytesType), v)
	}
	shape := part(part(number(nil, 2, 11), 3, []byte{4, 4}), 5, part(nil, 1, []byte{1, 0}))
	signature := part(part(part(nil, 1, shape), 2, shape), 3, []byte("x"))
	operation := func(name, code string, id uint64) []byte {
		return number(part(part(part(nil, 1, []byte(name)), 2, []byte(code)), 3, shape), 35, id)
	}
	operands := []byte{1, 1}
	if target != "" {
		operands = operands[:1]
	}
	root := part(part(part(operation("a.2", opcode, 2), 36, operands), 28, []byte(target)), 43, []byte("1,1,100,1e-6"))
	main := part(part(part(nil, 1, []byte("main")), 2, operation("x.1", "parameter", 1)), 2, root)
	main = number(number(part(main, 4, signature), 5, 1), 6, 2)
	module := part(part(part(nil, 1, []byte("m")), 2, []byte("main")), 3, main)
	return number(number(part(module, 4, signature), 5, 1), 6, 1)
}

// TestMutatedBytecode compiles programs with some random bytes. Any result is accepted, but this
// process must not crash.
func TestMutatedBytecode(t *testing.T) {
	whole := bytecode(t)
	client := plugintest.CPU(t, 1)
	c := newCompiler(t, worker.Options{Timeout: 20 * time.Second, MaxWorkers: 2})
	checkMutations(t, 60, func(seed uint64) (io.Closer, error) {
		return c.Compile(context.Background(), client,
			pjrt.Program{Code: append(bytes.Clone(whole[:8]), damage(whole[8:], seed)...)}, pjrt.CompileOptions{})
	})
	// The client still works.
	x, err := client.Compile(context.Background(), pjrt.Program{Code: addOne.Code, Trusted: true},
		pjrt.CompileOptions{})
	require.NoError(t, err)
	require.NoError(t, x.Close())
}

// damage returns code with up to three random bytes.
func damage(whole []byte, seed uint64) []byte {
	rng := rand.New(rand.NewPCG(seed, 7))
	code := bytes.Clone(whole)
	for range 1 + rng.IntN(3) {
		code[rng.IntN(len(code))] = byte(rng.IntN(256))
	}
	return code
}

// checkMutations runs compilations, logs their results, and checks that no worker is left.
func checkMutations(t *testing.T, mutations int, compile func(seed uint64) (io.Closer, error)) {
	t.Helper()
	var outcomes struct{ compiled, rejected, died, timedOut atomic.Int64 }
	var all sync.WaitGroup
	for seed := range uint64(mutations) {
		all.Go(func() {
			x, err := compile(seed)
			var ended *worker.Error
			switch {
			case err == nil:
				outcomes.compiled.Add(1)
				assert.NoError(t, x.Close())
			case errors.As(err, &ended) && ended.Reason == worker.TimedOut:
				outcomes.timedOut.Add(1)
			case errors.As(err, &ended):
				outcomes.died.Add(1)
				t.Logf("mutation %d: %s", seed, ended.State)
			default:
				outcomes.rejected.Add(1)
			}
		})
	}
	all.Wait()
	t.Logf("of %d: %d compiled, %d rejected, %d died, %d timed out", mutations,
		outcomes.compiled.Load(), outcomes.rejected.Load(), outcomes.died.Load(), outcomes.timedOut.Load())
	require.EqualValues(t, mutations, outcomes.compiled.Load()+outcomes.rejected.Load()+outcomes.died.Load()+
		outcomes.timedOut.Load())
	requireNoWorkers(t)
}
