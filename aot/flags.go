package aot

import (
	"flag"
	"strings"

	"github.com/tpustrategy/tpustrategy/aot/plan"
	"github.com/tpustrategy/tpustrategy/internal/ahead"
	"github.com/tpustrategy/tpustrategy/pjrt/worker"
)

// Flags are the flags of a program that can compile its step ahead of time. Replicas, Logical and
// JSON serve a run of the program as well, as far as it looks at them.
type Flags struct {
	// Topology names the slices to compile for, separated by commas; empty is none, so that the
	// program runs.
	Topology string
	// Replicas is the number of replicas; 0 is as many as fit.
	Replicas int
	// Logical is the number of logical devices of a replica.
	Logical int
	// Report, Save and Text are files to write the report, the compiled step and the step's
	// StableHLO to; empty is none.
	Report, Save, Text string
	// SuggestAnnotations also compiles the step with other annotations, for the report: see [report.SuggestAnnotations].
	SuggestAnnotations bool
	// JSON prints the answer as one JSON value.
	JSON bool
	// Plan is a file to write the best plan to, which is searched for among the slices of Topology; empty
	// is none. Search are the options of that search, but for what it costs and who is told.
	Plan   string
	Search plan.Options

	worker []string // the command of a process that compiles
	set    *flag.FlagSet
	try    map[string][]string
	by     *plan.Plan
}

// AddFlags adds -topology, -replicas, -logical, -report, -save, -text, -suggest-annotations, -json, -plan, -try and -by to
// a program's flags and returns their values, which are set when the flags are parsed. Call it first in main:
// [Flags.Main] starts the program again as the process that compiles, which ends in this call. It
// panics, as package flag does, if the program has a flag of one of these names.
func AddFlags(to *flag.FlagSet) *Flags {
	f := &Flags{worker: worker.Main(), set: to}
	to.StringVar(&f.Topology, "topology", "", "compile for this `slice` instead of running, such as v5e:4x4, v5p-128, \"2x v5e-256\", h100:8 or cpu:8; several are separated by commas")
	to.IntVar(&f.Replicas, "replicas", 0, "number of replicas; 0 takes as many as fit")
	to.IntVar(&f.Logical, "logical", 1, "number of logical devices of a replica")
	to.StringVar(&f.Report, "report", "", "with -topology: write the report to this `file`, as a page if the name ends in .html, and as JSON otherwise")
	to.StringVar(&f.Save, "save", "", "with -topology: write the compiled step to this `file`, to be loaded and run on such a slice")
	to.StringVar(&f.Text, "text", "", "with -topology: write the step's StableHLO to this `file`")
	to.BoolVar(&f.SuggestAnnotations, "suggest-annotations", false, "with -topology: also compile with other annotations, and report which of them remove collectives")
	to.BoolVar(&f.JSON, "json", false, "print the answer as one JSON value")
	f.addPlanFlags(to)
	return f
}

// Requested reports whether the program is to compile instead of running: one of -topology,
// -report, -save, -text and -plan was given. The latter without -topology are wrong usage, which
// [Flags.Main] reports.
func (f *Flags) Requested() bool { return f.Topology+f.Report+f.Save+f.Text+f.Plan != "" }

// given are the values of the flags that were given; the program's own are among them.
func (f *Flags) given() map[string]string {
	given := map[string]string{}
	if f.set != nil {
		f.set.Visit(func(one *flag.Flag) { given[one.Name] = one.Value.String() })
	}
	return given
}

// options are the flags that were given, but for what the report has of its own, and where it goes.
func (f *Flags) options() map[string]string {
	given := f.given()
	for _, name := range []string{"topology", "replicas", "logical", "report", "save", "text", "suggest-annotations", "json", "by", "plugin", "out"} {
		delete(given, name)
	}
	return given
}

// topologies are the slices that the flags name.
func (f *Flags) topologies() (all []string) {
	for _, name := range strings.Split(f.Topology, ",") {
		all = append(all, strings.TrimSpace(name))
	}
	return all
}

// check refuses flags that cannot be meant, before anything is opened.
func (f *Flags) check() error {
	switch {
	case f.Topology == "":
		return ahead.Misused("compile ahead of time", "add -topology v5e:4x4, or leave them out", "-report, -save, -text and -plan are of a compilation, and there is no -topology")
	case f.Logical < 1:
		return ahead.Misused("compile ahead of time", "give a number from 1", "-logical %d", f.Logical)
	case f.Replicas < 0:
		return ahead.Misused("compile ahead of time", "give a number from 1, or 0 for as many as fit", "-replicas %d", f.Replicas)
	case len(f.topologies()) > 1 && f.Text+f.Save != "":
		return ahead.Misused("compile ahead of time", "give one -topology", "-text and -save write one file")
	}
	for _, out := range [][2]string{{"report", f.Report}, {"text", f.Text}, {"save", f.Save}} {
		if err := ahead.CheckPlace(out[1]); err != nil {
			return ahead.Refused("compile ahead of time: -"+out[0], err)
		}
	}
	for _, topology := range f.topologies() {
		if err := ahead.CheckTopology("compile ahead of time", "-topology", topology); err != nil {
			return err
		}
	}
	return f.checkPlan()
}
