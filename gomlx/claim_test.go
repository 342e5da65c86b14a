package gomlx_test

import (
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/gomlx/compute"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/gomlx"
	"github.com/tpustrategy/tpustrategy/internal/test/plugintest"
)

// TestConcurrentProgramsOverOneBuffer executes programs that want one buffer in different layouts,
// or on a device alone, from many goroutines, while others read it.
func TestConcurrentProgramsOverOneBuffer(t *testing.T) {
	b := newBackend(t, grid)
	x := put(t, b, eight)
	double := func(f compute.Function, v []compute.Value) []compute.Value {
		return []compute.Value{must(t)(f.Add(v[0], v[0]))}
	}
	split := compiledOf(t, b, []tensor{eight}, double)
	whole := compiledOf(t, b, []tensor{weights}, double)
	want := []float32{2, 4, 6, 8, 10, 12, 14, 16}
	var all sync.WaitGroup
	plugintest.Within(t, 2*time.Minute, func() {
		for g := range 8 {
			all.Go(func() {
				for range 10 {
					exe, device := split, compute.DeviceNum(0)
					switch g % 4 {
					case 1:
						exe = whole
					case 2:
						device = 3
					case 3:
						assert.Equal(t, eight.flat, flatOf(t, x))
						continue
					}
					out, err := exe.Execute([]compute.Buffer{x}, nil, device)
					if assert.NoError(t, err) {
						assert.Equal(t, want, flatOf(t, out[0]))
						assert.NoError(t, out[0].Finalize())
					}
				}
			})
		}
		all.Wait()
	})
}

// TestADonatedBufferIsOnesOwn donates a buffer while others read it. The readers receive its value
// or ErrDonated, never the result that reuses its memory.
func TestADonatedBufferIsOnesOwn(t *testing.T) {
	b := newBackend(t, grid)
	next := compiledOf(t, b, []tensor{weights}, func(f compute.Function, v []compute.Value) []compute.Value {
		return []compute.Value{must(t)(f.Neg(v[0]))}
	})
	same := compiledOf(t, b, []tensor{weights}, func(f compute.Function, v []compute.Value) []compute.Value {
		return []compute.Value{must(t)(f.Add(v[0], must(t)(f.Constant([]float32{0}))))}
	})
	negative := []float32{-8, -7, -6, -5, -4, -3, -2, -1}
	plugintest.Within(t, 2*time.Minute, func() {
		for range 20 {
			x := put(t, b, weights)
			var all sync.WaitGroup
			for g := range 4 {
				all.Go(func() {
					values := make([]float32, 8)
					if g == 0 {
						if err := x.ToFlatData(values); err == nil {
							assert.Equal(t, weights.flat, values)
						} else {
							assert.ErrorIs(t, err, gomlx.ErrDonated)
						}
						return
					}
					out, err := same.Execute([]compute.Buffer{x}, nil, 0)
					if err == nil {
						assert.Equal(t, weights.flat, flatOf(t, out[0]))
					} else {
						assert.ErrorIs(t, err, gomlx.ErrDonated)
					}
				})
			}
			out, err := next.Execute([]compute.Buffer{x}, []bool{true}, 0)
			if assert.NoError(t, err) {
				assert.Equal(t, negative, flatOf(t, out[0]))
			}
			all.Wait()
			_, err = same.Execute([]compute.Buffer{x}, nil, 0)
			assert.ErrorIs(t, err, gomlx.ErrDonated)
		}
		elsewhere, err := compiledOf(t, b, []tensor{eight}, func(f compute.Function, v []compute.Value) []compute.Value {
			return []compute.Value{must(t)(f.Neg(v[0]))}
		}).Execute([]compute.Buffer{put(t, b, eight)}, nil, 0)
		if assert.NoError(t, err) {
			out, err := next.Execute(elsewhere, []bool{true}, 0)
			if assert.NoError(t, err, "of a buffer that lies otherwise than the program wants it") {
				assert.Equal(t, eight.flat, flatOf(t, out[0]))
			}
		}
	})
}

// TestBuffersThatManyWantToTake donates two buffers in both orders from two goroutines. At most one
// of the two executions succeeds, and there is no deadlock.
func TestBuffersThatManyWantToTake(t *testing.T) {
	b := newBackend(t, grid)
	exe := compiledOf(t, b, []tensor{weights, {name: "/v", flat: weights.flat, dims: weights.dims}}, addSub(t))
	plugintest.Within(t, 2*time.Minute, func() {
		for range 20 {
			x, y := put(t, b, weights), put(t, b, weights)
			var taken [2]error
			var all sync.WaitGroup
			for g, in := range [][]compute.Buffer{{x, y}, {y, x}} {
				all.Go(func() { _, taken[g] = exe.Execute(in, []bool{true, true}, 0) })
			}
			all.Wait()
			for _, err := range taken {
				if err != nil {
					assert.ErrorIs(t, err, gomlx.ErrDonated)
				}
			}
			assert.False(t, taken[0] == nil && taken[1] == nil, "both have them")
		}
	})
}

// TestBackendsThatEndDuringExecutions finalizes the backend, and an executable, under goroutines that
// execute and read.
func TestBackendsThatEndDuringExecutions(t *testing.T) {
	for _, what := range []string{"backend", "executable", "buffer"} {
		t.Run(what, func(t *testing.T) {
			sys := plugintest.System(t, 4)
			b, err := gomlx.New(sys, gomlx.Options{LogicalDevices: 2})
			require.NoError(t, err)
			exe := compiledOf(t, b, []tensor{eight, weights}, addSub(t))
			x, y := put(t, b, eight), put(t, b, weights)
			_, err = exe.Execute([]compute.Buffer{x, y}, nil, 0)
			require.NoError(t, err)
			plugintest.Within(t, time.Minute, func() {
				var all sync.WaitGroup
				started := make(chan struct{}, 4)
				for range 4 {
					all.Go(func() {
						for i := 0; ; i++ {
							out, err := exe.Execute([]compute.Buffer{x, y}, nil, 0)
							if i == 0 {
								started <- struct{}{}
							}
							if err == nil {
								err = out[0].ToFlatData(make([]float32, 8))
							}
							if err != nil {
								assert.True(t, errors.Is(err, gomlx.ErrFinalized) || isClosed(err), "%v", err)
								assertFault(t, err)
								return
							}
						}
					})
				}
				for range 4 {
					<-started
				}
				switch what {
				case "backend":
					assert.NoError(t, b.Close())
				case "executable":
					exe.Finalize()
				case "buffer":
					assert.NoError(t, y.Finalize())
				}
				all.Wait()
			})
			require.NoError(t, b.Close())
			assert.Zero(t, b.NumLive())
		})
	}
}

// TestConcurrentCollectives executes two programs with all-reduces from many goroutines: no device
// may wait in one while its peers wait in the other.
func TestConcurrentCollectives(t *testing.T) {
	b := newBackend(t, grid)
	x, w := put(t, b, eight), put(t, b, weights)
	sum := compiledOf(t, b, []tensor{eight}, func(f compute.Function, v []compute.Value) []compute.Value {
		return []compute.Value{must(t)(f.ReduceSum(v[0]))}
	})
	product := compiledOf(t, b, []tensor{eight, weights}, func(f compute.Function, v []compute.Value) []compute.Value {
		return []compute.Value{must(t)(f.ReduceSum(must(t)(f.Mul(v[0], v[1])))), must(t)(f.ReduceMax(v[0]))}
	})
	plugintest.Within(t, 2*time.Minute, func() {
		var all sync.WaitGroup
		for g := range 8 {
			all.Go(func() {
				for range 50 {
					exe, in, want := sum, []compute.Buffer{x}, float32(36)
					if g%2 == 0 {
						exe, in, want = product, []compute.Buffer{x, w}, 120
					}
					out, err := exe.Execute(in, nil, 0)
					if assert.NoError(t, err) {
						assert.Equal(t, []float32{want}, flatOf(t, out[0]))
					}
				}
			})
		}
		all.Wait()
	})
}
