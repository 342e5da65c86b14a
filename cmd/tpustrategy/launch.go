package main

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/tpustrategy/tpustrategy/internal/launch"
	"github.com/tpustrategy/tpustrategy/tpu/system"
)

type launchCmd struct {
	Slice     string   `arg:"" help:"A slice, such as v5litepod-16, v5p-32, v6e-256, tpu7x-16 or \"2x v5e-256\"."`
	Arguments []string `arg:"" optional:"" help:"Arguments of the program, behind --."`
	On        string   `help:"Where the machines come from: tpu-vm, queued, gce, mig or gke." required:""`
	DryRun    bool     `help:"Print it. Nothing is run without you."`
	Part      string   `help:"What to print: script, manifest or dockerfile; the last two for gke." default:"script"`
	Program   string   `help:"The program's Go package." default:"./examples/multihost"`
	Name      string   `help:"Name of what is made; the default is the program's."`
	Project   string   `help:"Google Cloud project; without it the script reads $PROJECT."`
	Zone      string   `help:"Zone; without it the script reads $ZONE."`
	Spot      bool     `help:"Take spot machines: cheaper, and taken away at any time."`
	Image     string   `help:"Runtime version (tpu-vm, queued), image family (gce, mig) or container image (gke), in place of the generation's."`
	Bucket    string   `help:"gs://bucket/folder through which the program reaches the machines: one upload instead of a copy to each."`
	Fetch     string   `help:"File of the program that is copied here when it ends."`
	Cluster   string   `help:"Cluster of GKE; without it the script reads $CLUSTER."`
	Location  string   `help:"Location of the cluster, if it is not the zone's region."`
	Restarts  int      `help:"How often the program is started again after an interruption; on GKE after a failure, as interruptions do not count." default:"10"`
}

// Help is the text under --help.
func (launchCmd) Help() string {
	return `Prints what rents a slice, runs a program on all its hosts, starts it again after an interruption, and deletes what it made, also after Ctrl-C. It runs nothing: read what it prints, and give it to bash.

Examples:
  tpustrategy launch v5litepod-16 --on tpu-vm --dry-run > slice.sh
  PROJECT=my-project ZONE=us-west4-a bash slice.sh
  tpustrategy launch v5p-32 --on queued --spot --bucket gs://my-bucket/jobs --dry-run -- -slice -v
  tpustrategy launch "2x v6e-256" --on gke --project my-project --zone us-east5-b --part manifest --dry-run | kubectl apply -f -`
}

// multihostArguments are the arguments of the default program.
var multihostArguments = []string{"-slice", "-v", "-logical", "1", "-wait", "10m"}

// Run prints the text.
func (c *launchCmd) Run(a *app, root *cli) error {
	if !c.DryRun {
		return misused("launch", "give --dry-run, read what is printed, and run it with bash", "it rents nothing by itself: machines that cost money are started by you")
	}
	count, slice, err := system.ParseSlices(c.Slice)
	if err != nil {
		return refused("launch", err)
	}
	arguments := c.Arguments
	if len(arguments) == 0 && c.Program == "./examples/multihost" {
		arguments = multihostArguments
	}
	job := launch.Job{Slice: slice, Slices: count, On: launch.Place(c.On), Name: c.Name, Project: c.Project, Zone: c.Zone, Spot: c.Spot,
		Image: c.Image, Program: c.Program, Arguments: arguments, Bucket: c.Bucket, Fetch: c.Fetch, Cluster: c.Cluster, Location: c.Location,
		Restarts: c.Restarts, Command: c.line()}
	text, err := job.Text(launch.Part(c.Part))
	if err != nil {
		return &usageError{Err: err}
	}
	if root.JSON {
		return a.printJSON(map[string]any{"slice": slice.Type(), "slices": count, "on": c.On, "part": c.Part, "text": text})
	}
	out := a.stdout
	if _, ok := a.terminal(); !ok {
		out = a.bytes() // the output is a file for bash or kubectl and must not be escaped
	}
	_, err = fmt.Fprint(out, text)
	return err
}

// line returns the command line that prints the same text.
func (c *launchCmd) line() string {
	words := []string{"tpustrategy", "launch", c.Slice, "--on", c.On}
	for _, option := range []struct{ name, value, usual string }{
		{"part", c.Part, "script"}, {"program", c.Program, "./examples/multihost"}, {"name", c.Name, ""}, {"project", c.Project, ""},
		{"zone", c.Zone, ""}, {"image", c.Image, ""}, {"bucket", c.Bucket, ""}, {"fetch", c.Fetch, ""}, {"cluster", c.Cluster, ""}, {"location", c.Location, ""},
		{"restarts", strconv.Itoa(c.Restarts), "10"},
	} {
		if option.value != option.usual {
			words = append(words, "--"+option.name, option.value)
		}
	}
	if c.Spot {
		words = append(words, "--spot")
	}
	words = append(words, "--dry-run")
	if len(c.Arguments) > 0 {
		words = slices.Concat(words, []string{"--"}, c.Arguments)
	}
	for i, word := range words {
		words[i] = launch.Quote(word)
	}
	return strings.Join(words, " ")
}
