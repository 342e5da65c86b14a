package main

import (
	"context"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/internal/files"
	"github.com/tpustrategy/tpustrategy/lowering"
	"github.com/tpustrategy/tpustrategy/pjrt"
	"github.com/tpustrategy/tpustrategy/report"
	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/strategy/stepfile"
	"github.com/tpustrategy/tpustrategy/tpu"
	"github.com/tpustrategy/tpustrategy/tpu/system"
)

// compileRequest asks a child to compile a step for one topology.
type compileRequest struct {
	// Plugin is the path of the plugin.
	Plugin   string `json:"plugin"`
	Topology string `json:"topology"`
	// Example is the name of a model; without one, File is StableHLO.
	Example   string    `json:"example,omitempty"`
	Size      modelSize `json:"size"`
	File      string    `json:"file,omitempty"`
	Replicas  int       `json:"replicas,omitempty"`
	Logical   int       `json:"logical,omitempty"`
	Whole     bool      `json:"whole,omitempty"`
	Precision string    `json:"precision,omitempty"`
	// Text and Save are files to write the step's StableHLO and the compiled step to.
	Text string `json:"text,omitempty"`
	Save string `json:"save,omitempty"`
}

// compileAnswer is what came of it.
type compileAnswer struct {
	Report *report.Report `json:"report"`
}

// cpuTopology is a topology of devices of the CPU plugin, as in "cpu:8".
var cpuTopology = regexp.MustCompile(`^cpu:([1-9][0-9]{0,3})$`)

// cpuDevices is the number of devices of a CPU topology, or 0.
func cpuDevices(topology string) int {
	m := cpuTopology.FindStringSubmatch(topology)
	if m == nil {
		return 0
	}
	// The expression lets few digits through only.
	n, _ := strconv.Atoi(m[1])
	return n
}

// compile does a compile request.
func compile(ctx context.Context, r compileRequest) (*compileAnswer, error) {
	if r.File != "" {
		return compileFile(ctx, r)
	}
	m, size, err := findModel(r.Example, r.Size)
	if err != nil {
		return nil, err
	}
	opts := strategy.Options{Replicas: r.Replicas, LogicalDevices: r.Logical}
	if r.Precision == "highest" {
		opts.Precision = lowering.PrecisionHighest
	}
	if !r.Whole && max(r.Logical, 1) > 1 {
		opts.Variables = m.rules(r.Logical)
	}
	strat, done, err := open(ctx, r, opts)
	if err != nil {
		return nil, err
	}
	defer done()
	var batch []any
	for _, shape := range m.batch(size, size.Batch*strat.NumReplicasInSync()) {
		batch = append(batch, shape)
	}
	compiled, err := m.trainStep(strat, size).Compiled(ctx, batch...)
	if err != nil {
		return nil, err
	}
	if r.Text != "" {
		err := writeFile(r.Text, func(w io.Writer) error {
			_, err := w.Write(compiled.Module.Text)
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	if r.Save != "" {
		if err := writeFile(r.Save, func(w io.Writer) error { return stepfile.Save(w, compiled) }); err != nil {
			return nil, err
		}
	}
	rep, err := compiled.Report()
	if err != nil {
		return nil, err
	}
	return &compileAnswer{Report: rep}, nil
}

// open opens a strategy over the request's topology.
func open(ctx context.Context, r compileRequest, opts strategy.Options) (*strategy.TPUStrategy, func(), error) {
	if n := cpuDevices(r.Topology); n > 0 {
		sys, err := system.Open(ctx, system.Options{CPUDevices: n, Plugin: r.Plugin})
		if err != nil {
			return nil, nil, err
		}
		strat, err := strategy.New(sys, opts)
		if err != nil {
			return nil, nil, err
		}
		return strat, func() {
			_ = strat.Close()
			_ = sys.Close()
		}, nil
	}
	slice, err := describeSlice(ctx, r.Topology, r.Plugin)
	if err != nil {
		return nil, nil, err
	}
	strat, err := strategy.NewAheadOfTime(slice, opts)
	if err != nil {
		return nil, nil, err
	}
	return strat, func() {
		_ = strat.Close()
		_ = slice.Close()
	}, nil
}

// replicasOf and partitionsOf read how many devices a module is for.
var (
	replicasOf   = regexp.MustCompile(`mhlo\.num_replicas\s*=\s*([0-9]{1,6})`)
	partitionsOf = regexp.MustCompile(`mhlo\.num_partitions\s*=\s*([0-9]{1,6})`)
)

// numberOf is the number that an expression finds in a text, 1 if there is none.
func numberOf(expression *regexp.Regexp, text []byte) int {
	n := 1
	if m := expression.FindSubmatch(text); m != nil {
		n, _ = strconv.Atoi(string(m[1])) // the expression lets few digits through only
	}
	return n
}

// maxProgram bounds a program that is read: compilers take no message of 2 GiB.
const maxProgram = 2<<30 - 1

// compileFile compiles a StableHLO file ahead of time.
func compileFile(ctx context.Context, r compileRequest) (*compileAnswer, error) {
	text, err := files.Read(r.File, maxProgram)
	if err != nil {
		return nil, refused("compile", err)
	}
	if cpuDevices(r.Topology) > 0 {
		return nil, misused("compile", "give a TPU slice such as v5e:2x4", "the CPU plugin does not compile a StableHLO file ahead of time")
	}
	slice, err := describeSlice(ctx, r.Topology, r.Plugin)
	if err != nil {
		return nil, err
	}
	defer slice.Close()
	replicas, partitions, perReplica := numberOf(replicasOf, text), numberOf(partitionsOf, text), max(r.Logical, 1)
	if replicas < 1 || partitions < 1 || partitions%perReplica != 0 {
		return nil, misused("compile", "give a number that divides them", "--logical %d does not divide the %d partitions of %s", perReplica, partitions, r.File)
	}
	assignment, err := tpu.BuildDeviceAssignment(slice.Topology(), tpu.AssignmentOptions{Replicas: replicas * partitions})
	if err != nil {
		return nil, &usageError{&errkind.Fault{Op: "compile", Reason: fmt.Sprintf("%s is for %d devices", r.File, replicas*partitions), Err: err}}
	}
	var ids []int
	for _, replica := range assignment.DeviceIDs() {
		ids = append(ids, replica...)
	}
	program, err := slice.Compile(ctx, pjrt.Program{Code: text}, pjrt.CompileOptions{
		Replicas: replicas, Partitions: partitions, DeviceAssignment: slices.Collect(slices.Chunk(ids, partitions)), SPMD: partitions > 1, Shardy: strings.Contains(string(text), "sdy."),
	})
	if err != nil {
		return nil, &errkind.Fault{Op: "compiling", Subject: r.File, Err: err}
	}
	defer program.Close()
	name, err := program.Name()
	if err != nil {
		return nil, err
	}
	rep, err := report.New(report.Input{
		Step: name, Target: report.TargetOf(slice.Facts()), Replicas: replicas * partitions / perReplica, LogicalDevices: perReplica,
		Program: program, Text: text,
	})
	if err != nil {
		return nil, err
	}
	return &compileAnswer{Report: rep}, nil
}
