package trainer

import (
	"cmp"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/tpustrategy/tpustrategy/aot"
	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/fit"
	"github.com/tpustrategy/tpustrategy/fit/progress"
	"github.com/tpustrategy/tpustrategy/fit/watchdog"
	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/lowering/precision"
	"github.com/tpustrategy/tpustrategy/lowering/remat"
	"github.com/tpustrategy/tpustrategy/tpu/system"
)

// Flags are the values of the flags of a training program, set when the flags are parsed.
type Flags struct {
	// Flags are -topology, -replicas, -logical and the other flags of package aot.
	*aot.Flags
	// Steps is the number of steps of the whole run. Batch is the number of rows of a step over all
	// replicas; 0 means the program's default.
	Steps int64
	Batch int
	// Accumulate is the number of microbatches of a step, for train.Options.
	Accumulate int
	// StateSharding selects the training state that is sharded over the replicas. Remat selects the
	// activations that are recomputed in the backward pass. Precision selects the dtypes of the
	// computation.
	StateSharding logical.StateSharding
	Remat         remat.Policy
	Precision     precision.Policy
	// Resume resumes from the last checkpoint in Out.
	Resume bool
	Seed   int64
	// Out is the folder or URL of the run's output. If it is empty, [Flags.Open] creates a folder.
	Out string
	// Devices is the number of CPU devices; 0 means the machine's TPU. Plugin is the path of the
	// PJRT plugin; empty means the installed plugin.
	Devices int
	Plugin  string

	// Cache is a folder or URL of compiled programs that later runs and other hosts can load; empty
	// means no cache.
	Cache string
	// Profile is the range of steps that are recorded for XProf; none if both are 0. See
	// fit.Profile.
	Profile struct{ From, To int64 }
	// Replay is the interval at which steps are run twice and compared; 0 means none. See
	// fit.Replay.
	Replay int64
	// SaveEvery is the number of steps between two checkpoints; 0 means the program's default.
	// Local configures additional local checkpoints on the hosts.
	SaveEvery int64
	Local     fit.LocalCheckpoints

	// System replaces Devices and Plugin if it is not nil: it specifies how the devices are opened
	// and how the processes of a slice find each other. StartTimeout limits the time until all
	// hosts have started; 0 means ten minutes.
	System       *system.Options
	StartTimeout time.Duration
	// Watchdog are the options of the run's watchdog. By default its Exit is os.Exit and its Dir is
	// Out.
	Watchdog watchdog.Options

	flagSet *flag.FlagSet
	// effects checks that -precision and -remat have an effect; it is set by Open.
	effects *effectChecker
	// outGiven reports that the caller set Out, and savesCheckpoints that the run saves
	// checkpoints.
	outGiven, savesCheckpoints bool
	// localFolder is the folder for files that cannot be written to a store; see
	// [Flags.createLocalFolder].
	localFolder string
	log         *slog.Logger
	line        *progress.Line
}

// Defaults contains the default values of flags.
type Defaults struct {
	Steps   int64
	Devices int
}

// AddFlags adds the flags to a flag set. Call it first in main, because it calls aot.AddFlags,
// which does not return in a process that was started as a compiler.
func AddFlags(flags *flag.FlagSet, d Defaults) *Flags {
	f := &Flags{Flags: aot.AddFlags(flags), flagSet: flags, Watchdog: watchdog.Options{Exit: os.Exit}}
	flags.Int64Var(&f.Steps, "steps", d.Steps, "number of training steps, including those before a resume")
	flags.IntVar(&f.Batch, "batch", 0, "rows of a step over all replicas; 0 means the program's default")
	flags.IntVar(&f.Accumulate, "accumulate", 1, "number of microbatches of a step, which run one after another")
	flags.BoolVar(&f.Resume, "resume", false,
		"resume from the last checkpoint in the folder -out, if there is one; an interrupted run saves and exits with "+
			"code 75")
	flags.Int64Var(&f.Seed, "seed", 1, "seed of the initial values and of the order of the data")
	flags.StringVar(&f.Out, "out", "", "folder or URL, shared by all hosts, for checkpoints, metrics and curves; by "+
		"default a temporary folder, without checkpoints if there are several hosts")
	flags.StringVar(&f.Cache, "cache", "", "folder or URL of a cache of compiled programs, for later runs and other hosts")
	flags.IntVar(&f.Devices, "devices", d.Devices, "number of CPU devices to create; 0 uses the machine's TPU")
	flags.StringVar(&f.Plugin, "plugin", "", "path of the PJRT plugin; by default the installed plugin")
	flags.Func("profile",
		"first and last step to record for XProf, such as 100-110; the profile is written to the folder profile in -out",
		func(text string) error {
			if _, err := fmt.Sscanf(text+"\n", "%d-%d\n", &f.Profile.From, &f.Profile.To); err != nil || f.Profile.From < 1 ||
				f.Profile.To < f.Profile.From {
				return errors.New("give two step numbers, counted from 1, such as 100-110")
			}
			return nil
		})
	flags.Int64Var(&f.Replay, "replay", 0,
		"run every n-th step twice and compare the results on all devices bit by bit; 0 disables this")
	flags.Int64Var(&f.SaveEvery, "save-every", 0, "number of steps between two checkpoints; 0 means the program's default")
	flags.Func("near", "number of steps between two local checkpoints on the hosts, in /dev/shm/tpustrategy or in the "+
		"folder after a colon, such as 10:/mnt/ssd", func(text string) error {
		steps, folder, _ := strings.Cut(text, ":")
		n, err := strconv.ParseInt(steps, 10, 64)
		if err != nil || n < 1 {
			return errors.New("give a number of steps, optionally followed by a colon and a folder, such as 10 or 10:/mnt/ssd")
		}
		f.Local = fit.LocalCheckpoints{Folder: cmp.Or(folder, "/dev/shm/tpustrategy"), Every: fit.Every(n)}
		return nil
	})
	addParsedFlag(flags, &f.StateSharding, "shard-state",
		"training state that is sharded over the replicas, one of "+strings.Join(logical.StateShardingNames(), ", "),
		logical.ParseStateSharding)
	addParsedFlag(flags, &f.Remat, "remat", "activations of a layer that are recomputed: none, products or full",
		remat.ParsePolicy)
	addParsedFlag(flags, &f.Precision, "precision", "dtype of the computation: f32, bf16 or f16", precision.ParsePolicy)
	return f
}

// addParsedFlag adds a flag whose text is converted by parse.
func addParsedFlag[T any](flags *flag.FlagSet, value *T, name, usage string, parse func(string) (T, error)) {
	flags.Func(name, usage, func(text string) (err error) {
		*value, err = parse(text)
		return err
	})
}

// Parse parses the program's arguments. With -help it prints the flags to w and returns
// flag.ErrHelp. The run later writes its warnings and progress to w. An unknown flag, an invalid
// value or an argument that is not a flag is an error of kind ValueError.
func (f *Flags) Parse(args []string, w io.Writer) error {
	flags := f.flagSet
	f.line = progress.NewLine(w, progress.Options{Prefix: flags.Name() + ": ", Record: progress.DefaultRecordFile()})
	f.log = slog.New(slog.NewTextHandler(f.line, &slog.HandlerOptions{Level: slog.LevelWarn}))
	flags.SetOutput(io.Discard)
	err := flags.Parse(args)
	switch {
	case errors.Is(err, flag.ErrHelp):
		fmt.Fprintf(w, "usage: %s [flags]\n", flags.Name())
		flags.SetOutput(w)
		flags.PrintDefaults()
		return err
	case err != nil:
		return &errkind.Fault{Match: ErrUsage, Err: err}
	case flags.NArg() > 0:
		return usageError("leave it out", "%q is no flag", flags.Arg(0))
	case f.Resume && f.Out == "":
		return usageError("give the folder by -out", "-resume requires the folder of the run")
	case f.Local.Every > 0 && f.Out == "":
		return usageError("give it by -out", "-near requires the folder or URL of the other checkpoints")
	}
	for _, v := range []struct {
		flag     string
		value    int64
		from, to int64
	}{
		{"steps", f.Steps, 1, 1 << 40},
		{"batch", int64(f.Batch), 0, 1 << 30},
		{"accumulate", int64(f.Accumulate), 1, 1 << 20},
		{"replay", f.Replay, 0, 1 << 40},
		{"save-every", f.SaveEvery, 0, 1 << 40},
		{"devices", int64(f.Devices), 0, 256},
		{"replicas", int64(f.Replicas), 0, 1 << 20},
		{"logical", int64(f.Logical), 1, 1 << 20},
	} {
		if v.value < v.from || v.value > v.to {
			return usageError(fmt.Sprintf("give a number from %d to %d", v.from, v.to), "-%s %d", v.flag, v.value)
		}
	}
	if f.Devices > 0 && !f.Requested() && max(f.Replicas, 1)*f.Logical > f.Devices {
		return usageError("lower -replicas or -logical, or raise -devices",
			"%d replicas of %d logical devices do not fit on %d devices",
			max(f.Replicas, 1), f.Logical, f.Devices)
	}
	return nil
}

// StartTask writes a line about a task that begins to the writer of [Flags.Parse]. On a terminal
// the line counts the seconds until the next task.
func (f *Flags) StartTask(line string) { f.line.StartTask(line) }

func usageError(hint, reason string, args ...any) error {
	return &errkind.Fault{Match: ErrUsage, Reason: fmt.Sprintf(reason, args...), Hint: hint}
}
