package main

import (
	"context"
	"io"
	"os"

	"github.com/tpustrategy/tpustrategy/internal/command"
)

func main() { os.Exit(runMain()) }

// runMain runs the program and returns its exit code.
func runMain() int { return command.Main(runProcess) }

func runProcess(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	cache, err := os.UserCacheDir()
	if err != nil {
		cache = "" // FindPlugin then ignores the installer's directory
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

// app contains the dependencies of the commands: output streams, environment variables and paths.
type app struct {
	stdout, stderr io.Writer
	stdin          io.Reader
	getenv         func(string) string
	environ        []string
	cacheDir       string
	// executable and argv0 are the path and the first argument of this program. A child process
	// uses the same.
	executable, argv0 string
}
