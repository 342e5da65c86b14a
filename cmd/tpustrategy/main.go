// Command tpustrategy looks at TPU slices, places replicas on them and compiles
// steps for them, with or without a TPU at hand.
//
//	tpustrategy doctor
//	tpustrategy topology v5e:4x4
//	tpustrategy assign v5p:2x2x2 --shape 1,1,2,1 --replicas 4
//	tpustrategy compile --example digits --topology v5e:2x4 --logical 2
//
// Every command answers as text, or with --json as one JSON value. Exit codes: 0
// done, 1 the work failed, 2 wrong usage, 3 a plugin is missing or unusable, 4 the
// program does not fit into the memory, 5 the compiler's process died, 130
// interrupted, 143 terminated.
package main

import (
	"context"
	"io"
	"os"
	"os/signal"
	"syscall"
)

func main() { os.Exit(mainCode()) }

// mainCode runs the command line of the process and returns its exit code.
func mainCode() int {
	ctx, stop := untilSignal(context.Background())
	defer stop()
	cache, err := os.UserCacheDir()
	if err != nil {
		cache = "" // the installer's place is then not looked at
	}
	executable, err := os.Executable()
	if err != nil {
		executable = os.Args[0]
	}
	a := &app{
		stdout: os.Stdout, stderr: os.Stderr, stdin: os.Stdin, getenv: os.Getenv, environ: os.Environ(),
		cacheDir: cache, executable: executable, argv0: os.Args[0],
	}
	return a.run(ctx, os.Args[1:])
}

// interrupted is why the work of a command was given up: a signal to the process.
type interrupted struct{ signal syscall.Signal }

func (e *interrupted) Error() string {
	if e.signal == syscall.SIGTERM {
		return "terminated"
	}
	return "interrupted"
}

// code is the exit code, that of a shell for a process which a signal has ended.
func (e *interrupted) code() int { return 128 + int(e.signal) }

// untilSignal returns a context that ends with the first signal to the process, by
// an *interrupted. The second ends the process.
func untilSignal(parent context.Context) (ctx context.Context, stop func()) {
	ctx, cancel := context.WithCancelCause(parent)
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM)
	go func() {
		select {
		case s := <-signals:
			signal.Stop(signals)
			cancel(&interrupted{s.(syscall.Signal)})
		case <-ctx.Done():
		}
	}()
	return ctx, func() {
		signal.Stop(signals)
		cancel(nil)
	}
}

// app is the process as the commands see it.
type app struct {
	stdout, stderr io.Writer
	stdin          io.Reader
	getenv         func(string) string
	environ        []string
	cacheDir       string
	// executable and argv0 start this program again, as a child.
	executable, argv0 string
}
