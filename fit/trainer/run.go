package trainer

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/gomlx/gomlx/ml/model"

	clusterresolver "github.com/tpustrategy/tpustrategy/cluster_resolver"
	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/fit"
	"github.com/tpustrategy/tpustrategy/fit/bar"
	"github.com/tpustrategy/tpustrategy/fit/interrupt"
	"github.com/tpustrategy/tpustrategy/fit/profile"
	"github.com/tpustrategy/tpustrategy/internal/command"
	"github.com/tpustrategy/tpustrategy/internal/plain"
	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/pjrt/cache"
	"github.com/tpustrategy/tpustrategy/storage"
	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/tpu/system"
)

// Program is the main function of a program, with its arguments and streams as parameters.
type Program func(ctx context.Context, args []string, stdout, stderr io.Writer) error

// Main runs a program and returns the exit code of [ExitCode]. It prints an error as one line on
// standard error. SIGINT and SIGTERM cancel the program's context. If the program does not return
// within two seconds after the signal, Main returns without it. While devices are open by
// [Flags.Open], Main waits instead, so that a run can save. A second signal ends the process.
//
// On a machine with a TPU, maintenance and preemption notices also cancel the context after
// [Flags.Open] was called.
func Main(name string, run Program) int {
	var ended atomic.Bool
	code := command.Main(func(ctx context.Context, args []string, stdout, stderr io.Writer) int {
		defer ended.Store(true)
		ctx, stop := withNotices(ctx)
		defer stop()
		return ExitCode(ctx, name, run(ctx, args, stdout, stderr), stderr)
	})
	if !ended.Load() && code == 128+int(syscall.SIGTERM) { // the program did not return after a signal at its start
		return interrupt.ExitCode
	}
	return code
}

// ExitCode prints a program's error to w and returns the exit code:
//   - 0 without an error and after -help;
//   - the code of an [ExitError];
//   - 2 for kind ValueError, which means invalid flags or data;
//   - 75 for a run that was interrupted, also at its start, and 130 for Ctrl-C at the start;
//   - 69 if another host or a service does not respond;
//   - 1 for other errors.
func ExitCode(ctx context.Context, name string, err error, w io.Writer) int {
	var exit *ExitError
	switch {
	case err == nil || errors.Is(err, flag.ErrHelp):
		return command.OK
	case errors.As(err, &exit):
		return exit.Code
	}
	fmt.Fprintf(w, "%s: %s\n", name, plain.EscapeText(err.Error()))
	code := interrupt.ExitCodeForContext(ctx, err)
	if code == command.Failed && errkind.KindOf(err) == errkind.ValueError {
		if errors.Is(err, ErrUsage) {
			fmt.Fprintf(w, "usage: %s [flags]; %s -help lists them\n", name, name)
		}
		return command.Usage
	}
	return code
}

// ErrUsage matches the error of an invalid command line. After such an error, [ExitCode] prints how
// to list the flags.
var ErrUsage = errkind.New(errkind.ValueError, "command line")

// ExitError contains the exit code of an operation that has already printed its error.
type ExitError struct{ Code int }

func (e *ExitError) Error() string { return fmt.Sprintf("exit code %d", e.Code) }

func (*ExitError) Kind() errkind.Kind { return errkind.RuntimeError }

// NewExitError converts an exit code, such as the result of aot.Flags.Main, to an error. It returns
// nil for 0.
func NewExitError(code int) error {
	if code == 0 {
		return nil
	}
	return &ExitError{code}
}

// NewStore returns a new store of variables with the initial seed of the flag -seed.
func (f *Flags) NewStore() *model.Store {
	store := model.NewStore()
	store.SetParam(model.ParamInitialSeed, f.Seed)
	return store
}

// StrategyOptions returns the strategy options that the flags specify. variables are sharding rules
// for the variables.
func (f *Flags) StrategyOptions(variables logical.Rules) strategy.Options {
	if f.StateSharding != 0 {
		variables = append(slices.Clip(variables), logical.MatchState("", f.StateSharding))
	}
	return f.ApplyPlan(strategy.Options{Replicas: f.Replicas, LogicalDevices: f.Logical, Variables: variables})
}

// Open opens the devices that the flags specify and creates a strategy over them. parameters is the
// number of parameters of the model. Call done once to close the strategy and the devices. If Out
// is empty, Open sets it to a new temporary folder. On CPU devices, it is an error of kind
// ResourceExhaustedError if the variables and the Adam state do not fit into the free memory.
func (f *Flags) Open(ctx context.Context, opts strategy.Options, parameters int) (strat *strategy.TPUStrategy,
	done func() error, err error) {
	if err := f.checkMemory(parameters, freeMemory); err != nil {
		return nil, nil, err
	}
	if f.outGiven = f.Out != ""; f.outGiven && !f.Resume {
		if at, err := fit.LatestSnapshot(ctx, joinPath(f.Out, "checkpoints")); err == nil {
			return nil, nil, usageError("add -resume to continue, or give another folder",
				"-out %s contains a run at step %d", f.Out, at.Step)
		}
	}
	if err := f.createLocalFolder(); err != nil {
		return nil, nil, err
	}
	programs, closeStore, err := f.openCache(ctx)
	if err != nil {
		return nil, nil, err
	}
	release := f.forwardNotices(ctx)
	f.StartTask("opening the devices")
	sys, err := f.openSystem(ctx)
	if err != nil {
		release()
		if f.System == nil && errors.Is(err, system.ErrNoTPU) {
			err = &errkind.Fault{Op: "-devices 0", Reason: "this host has no TPU",
				Hint: "give -devices 8 to run on 8 CPU devices", Match: system.ErrNoTPU}
		}
		return nil, nil, errors.Join(err, closeStore())
	}
	if opts.Phases == nil {
		opts.Phases = f.line.SetPhase
	}
	if opts.Compiler == nil && programs != nil {
		opts.Compiler = programs
	}
	if strat, err = strategy.New(sys, opts); err != nil {
		release()
		return nil, nil, errors.Join(err, sys.Close(), closeStore())
	}
	f.savesCheckpoints = f.outGiven || strat.NumProcesses() == 1
	f.effects = f.newEffectChecker(strat)
	return strat, func() error {
		defer release()
		defer f.line.Close()
		closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
		defer cancel()
		return errors.Join(strat.Close(), sys.Shutdown(closing), closeStore())
	}, nil
}

// openCache opens the cache of compiled programs, or returns nil if Cache is empty. If Cache is a
// URL, the programs are also stored in a local folder.
func (f *Flags) openCache(ctx context.Context) (programs *cache.Cache, closeStore func() error, err error) {
	dir, opts, closeStore := f.Cache, cache.Options{Logger: f.log}, func() error { return nil }
	if dir == "" {
		return nil, closeStore, nil
	}
	if storage.IsURL(dir) {
		if opts.Store, err = storage.Open(ctx, dir); err != nil {
			return nil, nil, err
		}
		closeStore = opts.Store.Close
		if opts.SigningKey, err = cache.StoreSigningKey(ctx, opts.Store); err == nil {
			dir, err = os.UserCacheDir()
		}
		dir = filepath.Join(dir, "tpustrategy", "programs")
	}
	if err == nil {
		programs, err = cache.Open(dir, opts)
	}
	if err != nil {
		return nil, nil, errors.Join(err, closeStore())
	}
	return programs, closeStore, nil
}

// startTimeout limits how long the hosts of a slice wait for each other at the start, and
// closeTimeout limits how long a host waits for its plugin at the end.
const startTimeout, closeTimeout = 10 * time.Minute, 30 * time.Second

// openSystem opens the devices. On a slice of several hosts, System or the cluster resolvers find
// the other hosts.
func (f *Flags) openSystem(ctx context.Context) (*system.System, error) {
	opts := system.Options{CPUDevices: f.Devices, Plugin: f.Plugin, Logger: f.log}
	if f.System == nil && (f.Devices > 0 || !system.HasTPU()) {
		return system.Open(ctx, opts)
	}
	wait := cmp.Or(f.StartTimeout, startTimeout)
	starting, cancel := context.WithTimeoutCause(ctx, wait,
		&errkind.Fault{Op: "start", Reason: "not all hosts had started after " + wait.String(),
			Err: context.DeadlineExceeded})
	defer cancel()
	if f.System != nil {
		return system.Open(starting, *f.System)
	}
	metadata := clusterresolver.NewMetadataClient(clusterresolver.MetadataOptions{Logger: f.log})
	several := opts
	several.Metadata, several.Resolver = metadata,
		clusterresolver.Default(clusterresolver.DefaultOptions{Getenv: os.Getenv, Metadata: metadata})
	sys, err := system.Open(starting, several)
	if errors.Is(err, clusterresolver.ErrNotDetected) { // a single machine
		return system.Open(starting, opts)
	}
	return sys, err
}

// FitOptions returns the options for [fit.Run]. settings must be the same when the run is resumed.
// Warnings are written to the writer of [Flags.Parse].
func (f *Flags) FitOptions(settings map[string]string) fit.Options {
	return fit.Options{Steps: f.Steps, Resume: f.Resume, Settings: settings, Logger: f.log}
}

// Hooks returns the hooks of a run that writes its files to Out: the table losses.csv, event files
// in the folder events, checkpoints in the folder checkpoints, and curve.html with the named
// metrics. A progress bar is written to the writer of [Flags.Parse]. Checkpoints are saved every
// -save-every steps, or at the interval every without the flag, and at the end of the run.
//
// The run has a watchdog: `tpustrategy watch` shows its status by Out, and a process that would
// wait forever ends with [watchdog.ExitCode]. With several processes, Out must be a shared folder
// or a URL such as gs://bucket/run; if Out is empty, there are no checkpoints. An interrupted run
// has exit code 75 only if the caller set Out, because otherwise the same command starts from the
// beginning.
//
// If Out is a URL, it receives the status records, the profiles, the checkpoints and, with each
// checkpoint, the table. The curve is copied to it at the end of the run. Event files stay in a
// local folder.
func (f *Flags) Hooks(every fit.Every, metrics ...string) []fit.Hook {
	path := func(name string) string { return filepath.Join(f.localFolder, name) }
	watch := f.Watchdog
	if watch.Dir == "" && f.savesCheckpoints {
		watch.Dir = f.Out
	}
	hooks := []fit.Hook{fit.Watch(watch), fit.Goodput(), bar.NewOnLine(f.line), fit.CSV(joinPath(f.Out, "losses.csv")),
		fit.Curve(path("curve.html"), metrics...), fit.Events(path("events"))}
	if f.savesCheckpoints {
		hooks = append(hooks, fit.Checkpoint(joinPath(f.Out, "checkpoints"), cmp.Or(fit.Every(f.SaveEvery), every),
			fit.CheckpointOptions{Local: f.Local}))
	}
	if f.Replay > 0 {
		hooks = append(hooks, fit.Replay(fit.Every(f.Replay)))
	}
	if f.Profile.From > 0 {
		hooks = append(hooks, fit.Profile(profile.Options{Dir: joinPath(f.Out, "profile"), From: f.Profile.From,
			To: f.Profile.To}))
	}
	if !f.outGiven { // the same command starts from the beginning
		hooks = append(hooks, fit.Hook{Name: "temporary folder",
			End: func(_ context.Context, _ *fit.State, err error) error {
				if stopped := (*interrupt.Error)(nil); errors.As(err, &stopped) {
					stopped.Unsaved = true
				}
				return nil
			}})
	}
	if f.effects != nil {
		hooks = append(hooks, f.effects.newHook())
	}
	return append(hooks, f.copyCurveHooks("curve.html")...)
}
