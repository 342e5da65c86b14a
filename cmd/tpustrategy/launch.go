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
	Topology  string   `arg:"" help:"Slice, such as v5litepod-16, v5p-32, v6e-256, tpu7x-16 or \"2x v5e-256\"."`
	Arguments []string `arg:"" optional:"" help:"Arguments of the program, after --."`
	On        string   `help:"Service that provides the machines: tpu-vm, queued, gce, mig or gke." required:""`
	DryRun    bool     `help:"Print the script. This flag is required, because the command starts nothing itself."`
	Part      string   `help:"File to print: script, manifest or dockerfile. The last two are for gke." default:"script"`
	Program   string   `help:"Go package of the program." default:"./examples/multihost"`
	Name      string   `help:"Name of the resources. Default: the name of the program."`
	Project   string   `help:"Google Cloud project. Default: the script reads $PROJECT."`
	Zone      string   `help:"Zone. Default: the script reads $ZONE."`
	Spot      bool     `help:"Use spot machines, which are cheaper and can be preempted at any time."`
	Image     string   `help:"Runtime version (tpu-vm, queued), image family (gce, mig) or container image (gke). Default: that of the TPU generation."`
	Bucket    string   `help:"gs://bucket/folder to upload the program to once. Default: copy it to each machine."`
	Fetch     string   `help:"File of the program that is copied to this machine at the end."`
	Cluster   string   `help:"GKE cluster. Default: the script reads $CLUSTER."`
	Location  string   `help:"Location of the cluster. Default: the region of the zone."`
	Restarts  int      `help:"Maximum number of restarts of the program after interruptions; on GKE after failures, because interruptions do not count." default:"10"`
}

func (launchCmd) Help() string {
	return `Prints a script that rents a slice, runs a program on all its hosts, restarts it after an interruption, and deletes all resources, also after Ctrl-C. The command itself starts nothing: read the script, and run it with bash.

Examples:
  tpustrategy launch v5litepod-16 --on tpu-vm --dry-run > slice.sh
  PROJECT=my-project ZONE=us-west4-a bash slice.sh
  tpustrategy launch v5p-32 --on queued --spot --bucket gs://my-bucket/jobs --dry-run -- -slice -v
  tpustrategy launch "2x v6e-256" --on gke --project my-project --zone us-east5-b --part manifest --dry-run | kubectl apply -f -`
}

// multihostArguments are the arguments of examples/multihost, the default program.
var multihostArguments = []string{"-slice", "-v", "-logical", "1", "-wait", "10m"}

func (c *launchCmd) Run(a *app, root *cli) error {
	if !c.DryRun {
		return usageErrorf("launch", "give --dry-run, read the script, and run it with bash",
			"the command rents no machines itself")
	}
	count, slice, err := system.ParseSlices(c.Topology)
	if err != nil {
		return newUsageError("launch", err)
	}
	arguments := c.Arguments
	if len(arguments) == 0 && c.Program == "./examples/multihost" {
		arguments = multihostArguments
	}
	job := launch.Job{Slice: slice, Slices: count, On: launch.Service(c.On), Name: c.Name, Project: c.Project,
		Zone: c.Zone, Spot: c.Spot,
		Image: c.Image, Program: c.Program, Arguments: arguments, Bucket: c.Bucket, Fetch: c.Fetch, Cluster: c.Cluster,
		Location: c.Location,
		Restarts: c.Restarts, Command: c.commandLine()}
	text, err := job.Text(launch.Document(c.Part))
	if err != nil {
		return &usageError{Err: err}
	}
	if root.JSON {
		return a.printJSON(map[string]any{"slice": slice.Type(), "slices": count, "on": c.On, "part": c.Part, "text": text})
	}
	out := a.stdout
	if _, ok := a.stdoutTerminal(); !ok {
		out = a.rawStdout() // the output is a file for bash or kubectl and must not be escaped
	}
	_, err = fmt.Fprint(out, text)
	return err
}

// commandLine returns a command line that generates the same document again.
func (c *launchCmd) commandLine() string {
	words := []string{"tpustrategy", "launch", c.Topology, "--on", c.On}
	for _, option := range []struct{ name, value, usual string }{
		{"part", c.Part, "script"}, {"program", c.Program, "./examples/multihost"}, {"name", c.Name, ""},
		{"project", c.Project, ""},
		{"zone", c.Zone, ""}, {"image", c.Image, ""}, {"bucket", c.Bucket, ""}, {"fetch", c.Fetch, ""}, {"cluster", c.Cluster,
			""}, {"location", c.Location, ""},
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
		words[i] = launch.QuoteBash(word)
	}
	return strings.Join(words, " ")
}
