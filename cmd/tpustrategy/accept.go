package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"regexp"
	"strings"
	"sync"
	"time"

	clusterresolver "github.com/tpustrategy/tpustrategy/cluster_resolver"
	"github.com/tpustrategy/tpustrategy/internal/accept"
	"github.com/tpustrategy/tpustrategy/internal/ahead"
	"github.com/tpustrategy/tpustrategy/internal/child"
	"github.com/tpustrategy/tpustrategy/tpu"
	"github.com/tpustrategy/tpustrategy/tpu/simhost"
	"github.com/tpustrategy/tpustrategy/tpu/system"
)

type acceptCmd struct {
	Quick     bool          `help:"Run smaller checks, for at most 2 minutes instead of 15."`
	Topology  string        `help:"Type of the slice, such as v5litepod-16. Default: the type that the machine reports."`
	Plugin    string        `type:"localpath" help:"Path of the PJRT plugin of any platform. Default: the installed libtpu."`
	CPU       int           `name:"cpu" help:"Run on this number of CPU devices instead of a TPU."`
	Hosts     int           `default:"1" help:"With --cpu: the number of simulated hosts that share the devices."`
	Store     string        `help:"Folder, or URL such as gs://bucket/run, that all hosts share, for checkpoints."`
	Only      []string      `help:"Run only these parts."`
	Skip      []string      `help:"Skip these parts."`
	Kill      int           `default:"-1" help:"Kill the process of this host at the end, to check the errors of the other hosts."`
	TimeLimit time.Duration `help:"Time limit of the run, such as 5m. Default: 15m, or 2m with --quick."`
	Output    string        `short:"o" type:"localpath" help:"File for the results. Default: tpustrategy-accept-HOST.jsonl.gz in this folder."`
	List      bool          `help:"List the parts and run none."`
}

func (acceptCmd) Help() string {
	return `Checks that this module works on the devices of this machine: start-up, versions, coordinates, collectives, dtypes, splits, training against stored losses, checkpoints and bandwidths. On a slice of several hosts, start it on all hosts at the same time. It needs only this binary and the plugin.

Examples:
  tpustrategy accept
  tpustrategy accept --quick --cpu 8 --hosts 4
  gcloud compute tpus tpu-vm ssh NAME --worker=all --command='./tpustrategy accept --store /mnt/shared'

Prints a verdict and writes a file that you can send with a bug report. The file contains no secrets. Exit codes: 0 accepted, 6 accepted with findings, 1 failed.`
}

// acceptAnswer is the JSON output of the accept command.
type acceptAnswer struct {
	Report   *accept.Report   `json:"report"`
	Outcomes []accept.Outcome `json:"outcomes"`
}

// check validates the flags and arguments.
func (c *acceptCmd) check() error {
	switch {
	case c.CPU < 0 || c.Hosts < 1 || c.Hosts > 1 && (c.CPU == 0 || c.CPU%c.Hosts != 0):
		return usageErrorf("accept", "give --cpu a number of devices that --hosts divides", "--cpu %d, --hosts %d", c.CPU,
			c.Hosts)
	case c.Kill < -1:
		return usageErrorf("accept", "hosts count from 0", "--kill %d", c.Kill)
	case c.TimeLimit < 0:
		return usageErrorf("accept", "give a time such as 5m", "--time-limit %v", c.TimeLimit)
	}
	if c.Topology != "" {
		if _, err := tpu.ParseAccelerator(c.Topology); err != nil {
			return newUsageError("accept", err)
		}
	}
	if err := checkScheme("accept", c.Store); err != nil {
		return err
	}
	if err := c.options().Validate(); err != nil {
		return newUsageError("accept", err)
	}
	if c.CPU == 0 && c.Plugin == "" && !system.HasTPU() {
		return &failure{Category: "missing",
			Message: "accept: this host has no TPU; give --cpu 8 to run on 8 CPU devices, or --plugin with another plugin"}
	}
	return nil
}

func (c *acceptCmd) options() accept.Options {
	o := accept.Options{Open: c.open, Accelerator: c.Topology, Quick: c.Quick, TimeLimit: c.TimeLimit, Only: c.Only,
		Skip: c.Skip, Store: c.Store, Getenv: os.Getenv}
	if c.Kill >= 0 {
		o.Kill = &c.Kill
	}
	return o
}

// open opens the devices of this host.
func (c *acceptCmd) open(ctx context.Context, logger *slog.Logger) (*system.System, error) {
	o := system.Options{CPUDevices: c.CPU, Plugin: c.Plugin, Logger: logger}
	if c.CPU == 0 && system.HasTPU() {
		o.Metadata = clusterresolver.NewMetadataClient(clusterresolver.MetadataOptions{Logger: logger})
		o.Resolver = clusterresolver.Default(clusterresolver.DefaultOptions{Getenv: os.Getenv, Metadata: o.Metadata})
	}
	return system.Open(ctx, o)
}

// acceptInChild runs the acceptance test. It is called in a child process, and sends each outcome
// and a heartbeat every second to the parent process.
func acceptInChild(ctx context.Context, c *acceptCmd) (*acceptAnswer, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		for beat := time.NewTicker(time.Second); ctx.Err() == nil; <-beat.C {
			child.SendNotice([]byte("{}"))
		}
	}()
	tell := func(o accept.Outcome) {
		if line, err := json.Marshal(o); err == nil {
			child.SendNotice(line)
		}
	}
	if c.Hosts <= 1 {
		o := c.options()
		o.OnOutcome = tell
		report, err := accept.Run(ctx, o)
		if err != nil {
			return nil, err
		}
		return &acceptAnswer{report, report.Outcomes}, nil
	}
	if c.Store == "" { // the hosts share the disk of this machine
		var err error
		if c.Store, err = os.MkdirTemp("", "tpustrategy-accept-"); err != nil {
			return nil, err
		}
		defer os.RemoveAll(c.Store)
	}
	base, err := system.Open(ctx, system.Options{CPUDevices: c.CPU, Plugin: c.Plugin})
	if err != nil {
		return nil, err
	}
	cluster, err := simhost.New(base, simhost.Options{Processes: c.Hosts})
	if err != nil {
		return nil, err
	}
	reports, errs := make([]*accept.Report, c.Hosts), make([]error, c.Hosts)
	var all sync.WaitGroup
	for i := range c.Hosts {
		all.Go(func() {
			o := c.options()
			o.Open = func(ctx context.Context, _ *slog.Logger) (*system.System, error) { return cluster.Open(ctx, i) }
			o.KillSelf = func() { cluster.Kill(i) }
			if i == 0 {
				o.OnOutcome = tell
			}
			reports[i], errs[i] = accept.Run(ctx, o)
		})
	}
	all.Wait()
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return &acceptAnswer{reports[0], reports[0].Outcomes}, nil
}

// The child process enforces its own time limit, which does not include time used by other
// programs. The parent process kills the child after acceptTimeFactor times that limit, or after
// acceptHeartbeatTimeout without a heartbeat.
const (
	acceptTimeFactor       = 4
	acceptHeartbeatTimeout = 30 * time.Second
)

func (c *acceptCmd) Run(ctx context.Context, a *app, root *cli) error {
	if c.List {
		return c.listParts(a, root)
	}
	if err := c.check(); err != nil {
		return err
	}
	name := c.Output
	if name == "" {
		host, err := os.Hostname()
		if err != nil {
			host = "host"
		}
		name = "tpustrategy-accept-" + unsafeNameCharacter.ReplaceAllString(host, "-") + ".jsonl.gz"
	}
	if err := ahead.CheckWritable(name); err != nil {
		return newUsageError("accept", err)
	}
	report := a.runAccept(ctx, root, c, acceptTimeFactor*c.options().TotalTimeLimit()+acceptHeartbeatTimeout,
		acceptHeartbeatTimeout)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err := ahead.WriteFile(name, func(w io.Writer) error { return accept.WriteArchive(w, report) }); err != nil {
		return err
	}
	if root.JSON {
		if err := a.printJSON(acceptAnswer{report, report.Outcomes}); err != nil {
			return err
		}
	} else {
		fmt.Fprintf(a.stdout, "\nVerdict: %s, after %.0f s\n", report.Verdict, report.Seconds)
		for _, reason := range report.Reasons {
			fmt.Fprintf(a.stdout, "  %s\n", reason)
		}
	}
	a.printWrittenFiles(name)
	switch report.Verdict {
	case accept.Accepted:
		return nil
	case accept.WithFindings:
		return &failure{Category: "findings", Message: string(report.Verdict), Reported: true}
	}
	return &failure{Category: "failed", Message: string(report.Verdict), Reported: true}
}

// unsafeNameCharacter matches characters that must not occur in the file name of a report.
var unsafeNameCharacter = regexp.MustCompile(`[^A-Za-z0-9.-]`)

// runAccept starts a child process for the acceptance test. It returns a report even if that
// process crashes, and nil if ctx is canceled. The process is killed if silence elapses without a
// heartbeat.
func (a *app) runAccept(ctx context.Context, root *cli, c *acceptCmd, limit, silence time.Duration) *accept.Report {
	limited, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("the run did not end within %v; raise --time-limit",
		limit))
	defer cancel()
	began := time.Now()
	var told []accept.Outcome
	notice := func(line []byte) {
		var o accept.Outcome
		if json.Unmarshal(line, &o) != nil || o.Part == "" {
			return
		}
		if n := len(told); n > 0 && told[n-1].Status == accept.Running {
			told = told[:n-1] // the part has finished
		}
		if told = append(told, o); !root.JSON && o.Status != accept.Running {
			a.showOutcome(o)
		}
	}
	answer, err := a.runChildWithHeartbeat(limited, "accept", childRequest{Accept: c}, silence, notice)
	if err == nil {
		report := answer.Accept.Report
		report.Outcomes = answer.Accept.Outcomes
		return report
	}
	if ctx.Err() != nil {
		return nil
	}
	// Report the finished parts, and the part that was running.
	report := &accept.Report{Version: accept.Version, Quick: c.Quick, Began: began.UTC().Truncate(time.Second),
		Seconds: time.Since(began).Seconds(), Outcomes: told}
	last := accept.Outcome{Part: "start", Status: accept.Failed}
	if n := len(told); n > 0 && told[n-1].Status == accept.Running {
		last = told[n-1]
		last.Status, report.Outcomes = accept.Failed, told[:n-1]
	} else if n > 0 {
		last.Part = "after " + told[n-1].Part
	}
	last.Failures = append(last.Failures, err.Error())
	var died *child.Error
	if errors.As(err, &died) {
		for line := range strings.Lines(died.OutputTail) {
			last.Facts = append(last.Facts, accept.Fact{Name: "its last words", Value: strings.TrimRight(line, "\n")})
		}
	}
	report.Outcomes = append(report.Outcomes, last)
	if !root.JSON {
		a.showOutcome(last)
	}
	report.SetVerdict()
	return report
}

// showOutcome prints an outcome. It omits successful outcomes of hosts other than host 0.
func (a *app) showOutcome(o accept.Outcome) {
	if o.Host == 0 || o.Status != accept.Passed {
		fmt.Fprintf(a.stdout, "host %d  %s\n", o.Host, strings.ReplaceAll(o.Text(), "\n", "\n        "))
	}
}

func (c *acceptCmd) listParts(a *app, root *cli) error {
	if root.JSON {
		return a.printJSON(accept.Parts())
	}
	for _, p := range accept.Parts() {
		fmt.Fprintf(a.stdout, "%-12s %4.0f s, quick %2.0f s   %s\n", p.Name, p.TimeLimit.Seconds(),
			p.QuickTimeLimit.Seconds(), p.Description)
	}
	return nil
}
