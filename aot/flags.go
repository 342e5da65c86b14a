package aot

import (
	"flag"
	"strings"

	"github.com/tpustrategy/tpustrategy/aot/plan"
	"github.com/tpustrategy/tpustrategy/internal/ahead"
	"github.com/tpustrategy/tpustrategy/pjrt/worker"
)

// Flags are the flags of a program that can compile its step ahead of time. Replicas, Logical and
// JSON are also useful when the program runs.
type Flags struct {
	// Topology contains the slices to compile for, separated by commas. If it is empty, the program
	// runs normally.
	Topology string
	// Replicas is the number of replicas; 0 means as many as fit.
	Replicas int
	// Logical is the number of logical devices of a replica.
	Logical int
	// Report, Save and Text are the files for the report, the compiled step and the step's
	// StableHLO; empty means none.
	Report, Save, Text string
	// SuggestAnnotations also compiles the step with other annotations, for the report: see
	// [report.SuggestAnnotations].
	SuggestAnnotations bool
	// JSON prints the output as one JSON value.
	JSON bool
	// Plan is the file for the best plan of a search over the slices of Topology. If it is empty,
	// there is no search. Search contains the options of that search, except for HourlyPrice and
	// Progress, which [Flags.Main] sets.
	Plan   string
	Search plan.Options

	worker       []string // command line of the process that compiles
	flagSet      *flag.FlagSet
	tryValues    map[string][]string
	planToFollow *plan.Plan
}

// AddFlags adds -topology, -replicas, -logical, -report, -save, -text, -suggest-annotations, -json,
// -plan, -try and -by to a program's flag set. Parsing the flags sets the returned values. It must
// be the first call in main, because [Flags.Main] starts the program again as the compiler's
// process, and AddFlags does not return in that process. Like package flag, AddFlags panics if the
// program already has a flag with one of these names.
func AddFlags(flags *flag.FlagSet) *Flags {
	f := &Flags{worker: worker.Main(), flagSet: flags}
	flags.StringVar(&f.Topology, "topology", "", "compile for this `slice` instead of running, such as v5e:4x4, "+
		"v5p-128, \"2x v5e-256\", h100:8 or cpu:8; several are separated by commas")
	flags.IntVar(&f.Replicas, "replicas", 0, "number of replicas; 0 means as many as fit")
	flags.IntVar(&f.Logical, "logical", 1, "number of logical devices of a replica")
	flags.StringVar(&f.Report, "report", "",
		"with -topology: write the report to this `file`, as a page if the name ends in .html, and as JSON otherwise")
	flags.StringVar(&f.Save, "save", "",
		"with -topology: write the compiled step to this `file`, which can be loaded on such a slice")
	flags.StringVar(&f.Text, "text", "", "with -topology: write the step's StableHLO to this `file`")
	flags.BoolVar(&f.SuggestAnnotations, "suggest-annotations", false,
		"with -topology: also compile with other annotations, and report which of them remove collectives")
	flags.BoolVar(&f.JSON, "json", false, "print the result as one JSON value")
	f.addPlanFlags(flags)
	return f
}

// Requested reports whether the program must compile instead of running: whether -topology,
// -report, -save, -text or -plan was given. [Flags.Main] returns an error if -topology is missing.
func (f *Flags) Requested() bool { return f.Topology+f.Report+f.Save+f.Text+f.Plan != "" }

// givenFlags returns the values of all flags on the command line, including the program's own.
func (f *Flags) givenFlags() map[string]string {
	values := map[string]string{}
	if f.flagSet != nil {
		f.flagSet.Visit(func(one *flag.Flag) { values[one.Name] = one.Value.String() })
	}
	return values
}

// reportedOptions returns the flags on the command line, without output files and flags that the
// report shows elsewhere.
func (f *Flags) reportedOptions() map[string]string {
	given := f.givenFlags()
	for _, name := range []string{"topology", "replicas", "logical", "report", "save", "text", "suggest-annotations",
		"json", "by", "plugin", "out"} {
		delete(given, name)
	}
	return given
}

func (f *Flags) topologies() (names []string) {
	for _, name := range strings.Split(f.Topology, ",") {
		names = append(names, strings.TrimSpace(name))
	}
	return names
}

// validate returns an error for invalid flags. It opens no files.
func (f *Flags) validate() error {
	switch {
	case f.Topology == "":
		return ahead.UsageErrorf("compile ahead of time", "add -topology v5e:4x4, or leave them out",
			"-report, -save, -text and -plan are of a compilation, and there is no -topology")
	case f.Logical < 1:
		return ahead.UsageErrorf("compile ahead of time", "give a number from 1", "-logical %d", f.Logical)
	case f.Replicas < 0:
		return ahead.UsageErrorf("compile ahead of time", "give a number from 1, or 0 for as many as fit", "-replicas %d",
			f.Replicas)
	case len(f.topologies()) > 1 && f.Text+f.Save != "":
		return ahead.UsageErrorf("compile ahead of time", "give one -topology", "-text and -save write one file")
	}
	for _, out := range [][2]string{{"report", f.Report}, {"text", f.Text}, {"save", f.Save}} {
		if err := ahead.CheckWritable(out[1]); err != nil {
			return ahead.NewUsageError("compile ahead of time: -"+out[0], err)
		}
	}
	for _, topology := range f.topologies() {
		if err := ahead.CheckTopology("compile ahead of time", "-topology", topology); err != nil {
			return err
		}
	}
	return f.checkPlan()
}
