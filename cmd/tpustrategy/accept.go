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
	"github.com/tpustrategy/tpustrategy/internal/simhost"
	"github.com/tpustrategy/tpustrategy/tpu"
	"github.com/tpustrategy/tpustrategy/tpu/system"
)

type acceptCmd struct {
	Quick       bool          `help:"Run less, in 2 minutes at most instead of 15."`
	Accelerator string        `help:"Type of the slice, such as v5litepod-16; by default what the machine says."`
	Plugin      string        `type:"localpath" help:"Path of the PJRT plugin, of any platform; by default the TPU's."`
	CPU         int           `name:"cpu" help:"Run on so many CPU devices instead."`
	Hosts       int           `default:"1" help:"With --cpu: divide the devices among so many simulated hosts."`
	Store       string        `help:"Folder, or URL such as gs://bucket/run, for checkpoints that all hosts share."`
	Only        []string      `help:"Run these parts only."`
	Skip        []string      `help:"Leave these parts out."`
	Kill        int           `default:"-1" help:"End the process of this host at the end, to see what the others are told."`
	Budget      time.Duration `help:"Time of the whole run, such as 5m; by default that of its parts, 15m or with --quick 2m."`
	Output      string        `short:"o" type:"localpath" help:"File to send back; by default tpustrategy-accept-HOST.jsonl.gz here."`
	List        bool          `help:"List the parts, and run none."`
}

// Help is the text under --help.
func (acceptCmd) Help() string {
	return `Proves on this machine that the project works on its devices: start-up, versions, coordinates, collectives, dtypes, splits, training against stored losses, checkpoints, bandwidths. On a slice of several hosts start it on all of them at once. It needs this binary and the plugin, nothing else.

Examples:
  tpustrategy accept
  tpustrategy accept --quick --cpu 8 --hosts 4
  gcloud compute tpus tpu-vm ssh NAME --worker=all --command='./tpustrategy accept --store /mnt/shared'

Ends with a verdict and a file to send back, which holds no secrets. Exit codes: 0 accepted, 6 accepted with findings, 1 failed.`
}

// acceptAnswer is the answer of the command accept.
type acceptAnswer struct {
	Report   *accept.Report   `json:"report"`
	Outcomes []accept.Outcome `json:"outcomes"`
}

// check returns an error for an invalid command line.
func (c *acceptCmd) check() error {
	switch {
	case c.CPU < 0 || c.Hosts < 1 || c.Hosts > 1 && (c.CPU == 0 || c.CPU%c.Hosts != 0):
		return misused("accept", "give --cpu a number of devices that --hosts divides", "--cpu %d, --hosts %d", c.CPU, c.Hosts)
	case c.Kill < -1:
		return misused("accept", "hosts count from 0", "--kill %d", c.Kill)
	case c.Budget < 0:
		return misused("accept", "give a time such as 5m", "--budget %v", c.Budget)
	}
	if c.Accelerator != "" {
		if _, err := tpu.ParseAccelerator(c.Accelerator); err != nil {
			return refused("accept", err)
		}
	}
	if err := reached("accept", c.Store); err != nil {
		return err
	}
	if err := c.options().Check(); err != nil {
		return refused("accept", err)
	}
	return nil
}

func (c *acceptCmd) options() accept.Options {
	o := accept.Options{Open: c.open, Accelerator: c.Accelerator, Quick: c.Quick, Budget: c.Budget, Only: c.Only, Skip: c.Skip, Place: c.Store, Getenv: os.Getenv}
	if c.Kill >= 0 {
		o.Kill = &c.Kill
	}
	return o
}

// open opens the devices of a host.
func (c *acceptCmd) open(ctx context.Context, logger *slog.Logger) (*system.System, error) {
	o := system.Options{CPUDevices: c.CPU, Plugin: c.Plugin, Logger: logger}
	if c.CPU == 0 && system.HasTPU() {
		o.Metadata = clusterresolver.NewMetadataClient(clusterresolver.MetadataOptions{Logger: logger})
		o.Resolver = clusterresolver.Default(clusterresolver.DefaultOptions{Getenv: os.Getenv, Metadata: o.Metadata})
	}
	return system.Open(ctx, o)
}

// acceptHere runs in the child. It sends each outcome to the parent, and a heartbeat every second.
func acceptHere(ctx context.Context, c *acceptCmd) (*acceptAnswer, error) {
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
		o.Tell = tell
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
			o.End = func() { cluster.Kill(i) }
			if i == 0 {
				o.Tell = tell
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

// The child exits after its time budget, which does not count time used by other programs. The
// parent stops a run after acceptWhole times that budget, and a child without a heartbeat for
// acceptSilence.
const (
	acceptWhole   = 4
	acceptSilence = 30 * time.Second
)

func (c *acceptCmd) Run(ctx context.Context, a *app, root *cli) error {
	if c.List {
		return c.list(a, root)
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
		name = "tpustrategy-accept-" + plainName.ReplaceAllString(host, "-") + ".jsonl.gz"
	}
	if err := ahead.CheckPlace(name); err != nil {
		return refused("accept", err)
	}
	report := a.accept(ctx, root, c, acceptWhole*c.options().Whole()+acceptSilence, acceptSilence)
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
		fmt.Fprintf(a.stdout, "Send back: %s\n", name)
	}
	switch report.Verdict {
	case accept.Accepted:
		return nil
	case accept.WithFindings:
		return &failure{Sort: "findings", Message: string(report.Verdict), Reported: true}
	}
	return &failure{Sort: "failed", Message: string(report.Verdict), Reported: true}
}

// plainName matches characters that are replaced in file names.
var plainName = regexp.MustCompile(`[^A-Za-z0-9.-]`)

// accept runs the parts in a child process and returns the report, even if the child dies.
func (a *app) accept(ctx context.Context, root *cli, c *acceptCmd, limit, silence time.Duration) *accept.Report {
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("the run did not end in %v: --budget gives it longer", limit))
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
	answer, err := a.childNoting(ctx, "accept", childRequest{Accept: c}, silence, notice)
	if err == nil {
		report := answer.Accept.Report
		report.Outcomes = answer.Accept.Outcomes
		return report
	}
	// Report the finished parts, and the part that was running.
	report := &accept.Report{Version: accept.Version, Quick: c.Quick, Began: began.UTC().Truncate(time.Second), Seconds: time.Since(began).Seconds(), Outcomes: told}
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
	report.Conclude()
	return report
}

// showOutcome prints an outcome. For hosts other than 0 it prints only outcomes that did not pass.
func (a *app) showOutcome(o accept.Outcome) {
	if o.Host == 0 || o.Status != accept.Passed {
		fmt.Fprintf(a.stdout, "host %d  %s\n", o.Host, strings.ReplaceAll(o.Line(), "\n", "\n        "))
	}
}

func (c *acceptCmd) list(a *app, root *cli) error {
	if root.JSON {
		return a.printJSON(accept.Parts())
	}
	for _, p := range accept.Parts() {
		fmt.Fprintf(a.stdout, "%-12s %4.0f s, quick %2.0f s   %s\n", p.Name, p.Full.Seconds(), p.Quick.Seconds(), p.Says)
	}
	return nil
}
