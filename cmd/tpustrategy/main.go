// Command tpustrategy describes TPU slices, assigns replicas to cores, and compiles steps, with or
// without a TPU. It also installs plugins, checks machines and monitors runs.
//
//	tpustrategy doctor
//	tpustrategy launch v5litepod-16 --on tpu-vm --dry-run
//	tpustrategy topology v5e:4x4
//	tpustrategy assign v5p:2x2x2 --shape 1,1,2,1 --replicas 4
//	tpustrategy compile --example digits --topology v5e:2x4 --logical 2
//	tpustrategy diff before.json after.json
//	tpustrategy curve RUN [RUN...]
//	tpustrategy watch run
//	tpustrategy accept
//
// Every command prints text, or with --json one JSON value. Exit codes: 0 success, 1 failure, 2
// invalid usage, 3 a plugin is missing or unusable, 4 the program does not fit into memory, 5 the
// compiler's process died, 6 accepted with findings, or worse than before or than a budget, 130
// interrupted, 143 terminated.
package main

import (
	"context"
	"io"
	"os"

	"github.com/tpustrategy/tpustrategy/internal/command"
)

func main() { os.Exit(mainCode()) }

// mainCode runs the command line of the process and returns its exit code.
func mainCode() int { return command.Main(runProcess) }

func runProcess(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	cache, err := os.UserCacheDir()
	if err != nil {
		cache = "" // the installer's directory is then not searched
	}
	executable, err := os.Executable()
	if err != nil {
		executable = os.Args[0]
	}
	a := &app{
		stdout: stdout, stderr: stderr, stdin: os.Stdin, getenv: os.Getenv, environ: os.Environ(),
		cacheDir: cache, executable: executable, argv0: os.Args[0],
	}
	return a.run(ctx, args)
}

// app is the environment of the commands: streams, environment variables and paths.
type app struct {
	stdout, stderr io.Writer
	stdin          io.Reader
	getenv         func(string) string
	environ        []string
	cacheDir       string
	// executable and argv0 start this program again, as a child.
	executable, argv0 string
}
