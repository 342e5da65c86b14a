package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"runtime"
	"slices"
	"strings"

	"github.com/alecthomas/kong"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/internal/ahead"
	"github.com/tpustrategy/tpustrategy/internal/command"
	"github.com/tpustrategy/tpustrategy/internal/files"
	"github.com/tpustrategy/tpustrategy/internal/plain"
	"github.com/tpustrategy/tpustrategy/logical"
)

// Exit codes of the commands.
const (
	exitFailed  = ahead.Failed
	exitUsage   = ahead.Usage
	exitMissing = ahead.Missing
)

type (
	usageError = ahead.UsageError
	failure    = ahead.Failure
)

// usageErrorf returns an error for invalid usage, with a reason and a hint.
func usageErrorf(op, hint, format string, args ...any) error {
	return ahead.UsageErrorf(op, hint, format, args...)
}

// newUsageError returns an error for invalid usage that wraps err.
func newUsageError(op string, err error) error { return ahead.NewUsageError(op, err) }

// classify converts an error to a failure, which has a category, an exit code and a message.
func classify(err error) *failure { return ahead.FailureOf(err) }

// cli is the command line for the parser kong.
type cli struct {
	JSON    bool             `help:"Print one JSON value." name:"json"`
	Version kong.VersionFlag `help:"Print the version."`

	Doctor doctorCmd `cmd:"" help:"Check which plugins are installed and what can run on this machine."`

	Launch launchCmd `cmd:"" help:"Print a script that rents a slice, runs a program on it and deletes it."`

	Topology  topologyCmd  `cmd:"" help:"Describe the hosts, devices and coordinates of a slice."`
	Assign    assignCmd    `cmd:"" help:"Show which core is which logical device of which replica."`
	Compile   compileCmd   `cmd:"" help:"Compile a step ahead of time and report its memory and cost."`
	Plan      planCmd      `cmd:"" help:"Search for the best slice and the best split of a step."`
	Validate  validateCmd  `cmd:"" help:"Compare predicted times with published measurements."`
	Report    reportCmd    `cmd:"" help:"Print or convert a report of compile."`
	Diff      diffCmd      `cmd:"" help:"Compare two compiled steps, or check one against a budget."`
	Curve     curveCmd     `cmd:"" help:"Draw the learning curve of a run."`
	Watch     watchCmd     `cmd:"" help:"Show the hosts of a run and their progress."`
	Export    exportCmd    `cmd:"" help:"Write a checkpoint as one safetensors file."`
	Generate  generateCmd  `cmd:"" help:"Continue a text with a language model."`
	Visualize visualizeCmd `cmd:"" help:"Draw which devices hold which shard of a tensor."`
	Install   installCmd   `cmd:"" help:"Install the pinned plugins."`
	Accept    acceptCmd    `cmd:"" help:"Check that the devices of this machine or slice work correctly."`

	Completion completionCmd `cmd:"" help:"Print a completion script for a shell."`

	Child         childCmd  `cmd:"" hidden:"" help:"Execute one request of a parent process."`
	CompileWorker workerCmd `cmd:"" hidden:"" help:"Compile one program for a parent process; see package pjrt/worker."`
}

// decodeLocalPath implements the kong type "localpath": a path that is not a URL.
func decodeLocalPath(ctx *kong.DecodeContext, target reflect.Value) error {
	var path string
	if err := ctx.Scan.PopValueInto("file", &path); err != nil {
		return err
	}
	if err := files.CheckLocal(path); err != nil {
		return err
	}
	if path != "" && path != "-" {
		path = kong.ExpandPath(path)
	}
	if target.Kind() == reflect.Slice { // the flag may be repeated
		target.Set(reflect.Append(target, reflect.ValueOf(path)))
		return nil
	}
	target.SetString(path)
	return nil
}

// exitStatus is a panic value with an exit code. It ends the command when kong calls its exit
// function, for example after --help.
type exitStatus int

// run executes one command line and returns the exit code.
func (a *app) run(ctx context.Context, args []string) (code int) {
	var c cli
	out := newCheckedOutput(a.stdout)
	a.stdout = out
	defer func() {
		if r := recover(); r != nil {
			e, ok := r.(exitStatus)
			if !ok {
				panic(r)
			}
			code = int(e)
		}
	}()
	parser, err := kong.New(&c,
		kong.Name("tpustrategy"),
		kong.Description("Describes TPU slices, compiles steps for them, and checks machines and runs."),
		kong.Writers(a.stdout, plain.NewWriter(a.stderr)),
		kong.Exit(func(code int) { panic(exitStatus(code)) }),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true}),
		kong.NamedMapper("localpath", kong.MapperFunc(decodeLocalPath)),
		kong.Vars{
			"version": "tpustrategy " + command.Version() + " " + runtime.Version(),
			"states":  strings.Join(logical.StateShardingNames(), ", "),
		},
		kong.Bind(a),
		kong.BindTo(ctx, (*context.Context)(nil)),
	)
	if err != nil {
		return a.reportError(&c, err)
	}
	if len(args) > 0 && args[0] == completeWord {
		a.complete(parser.Model.Node, args[1:])
		_ = out.text.Flush()
		return 0
	}
	args = normalizeArgs(args)
	kctx, err := parser.Parse(args)
	switch {
	case out.err != nil: // writing the help failed
		return a.reportError(&c, newOutputError(out.err))
	case err != nil:
		c.JSON = c.JSON || slices.Contains(args, "--json") // --json may follow the invalid argument
		return a.reportError(&c, &usageError{Err: &errkind.Fault{Op: "command line", Err: err,
			Hint: "see " + helpCommand(err)}})
	}
	err = kctx.Run(&c)
	_ = out.text.Flush() // out.err stores the error
	if err != nil {
		// The error is a consequence of the signal.
		var signal *command.Signal
		if errors.As(context.Cause(ctx), &signal) {
			a.reportError(&c, &failure{Category: "interrupted", Message: signal.Error()})
			return signal.Code()
		}
		if out.err == nil {
			return a.reportError(&c, err)
		}
	}
	if out.err != nil {
		return a.reportError(&c, newOutputError(out.err))
	}
	return 0
}

// helpCommand returns the command line that prints the help of the subcommand that failed to parse.
func helpCommand(err error) string {
	var parse *kong.ParseError
	if errors.As(err, &parse) && parse.Context != nil {
		if node := parse.Context.Selected(); node != nil {
			return "tpustrategy " + node.Name + " --help"
		}
	}
	return "tpustrategy --help"
}

func newOutputError(err error) error {
	return &errkind.Fault{Op: "the output is not complete", Err: err,
		Hint: "check the output file or pipe, and run the command again"}
}

// reportError reports an error and returns its exit code.
func (a *app) reportError(c *cli, err error) int {
	f := classify(err)
	if c.JSON && !f.Reported {
		_ = a.printJSON(map[string]any{"error": f})
	}
	fmt.Fprintf(a.stderr, "tpustrategy: %s\n", plain.EscapeText(f.Message))
	if f.Log != "" && f.Category == "died" {
		fmt.Fprintf(a.stderr, "The end of its log:\n%s\n", plain.EscapeText(indent(f.Log, "  ")))
	}
	return f.Code()
}

func (a *app) printJSON(v any) error {
	b, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(a.stdout, "%s\n", b)
	return err
}

// printWrittenFiles prints the names of the files that a command has written. It ignores empty names.
func (a *app) printWrittenFiles(paths ...string) {
	for _, path := range paths {
		if path != "" {
			fmt.Fprintf(a.stderr, "tpustrategy: wrote %s\n", plain.EscapeText(path))
		}
	}
}

// printLine prints a value as JSON on one line.
func (a *app) printLine(v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(a.stdout, "%s\n", b)
	return err
}

func indent(text, by string) string {
	return by + strings.ReplaceAll(strings.TrimRight(text, "\n"), "\n", "\n"+by)
}
