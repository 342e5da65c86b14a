package launch_test

import (
	"bytes"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/internal/launch"
	"github.com/tpustrategy/tpustrategy/tpu"
)

var update = flag.Bool("update", false, "write the expected texts anew")

func job(t *testing.T, slice string, on launch.Service) launch.Job {
	a, err := tpu.ParseAccelerator(slice)
	require.NoError(t, err)
	return launch.Job{Slice: a, On: on, Program: "./examples/multihost", Arguments: []string{"-slice", "-v"}, Restarts: 10}
}

func with(j launch.Job, change func(*launch.Job)) launch.Job {
	change(&j)
	return j
}

// texts are the texts that are compared with files.
func texts(t *testing.T) map[string]struct {
	job  launch.Job
	part launch.Document
} {
	type text = struct {
		job  launch.Job
		part launch.Document
	}
	queued := with(job(t, "v5p-32", launch.Queued), func(j *launch.Job) {
		j.Spot, j.Bucket, j.Fetch = true,
			"gs://my-bucket/jobs", "accept.jsonl.gz"
	})
	slices := with(job(t, "v5litepod-16", launch.Queued), func(j *launch.Job) { j.Slices = 2 })
	pods := with(job(t, "v6e-256", launch.GKE), func(j *launch.Job) {
		j.Project, j.Zone, j.Cluster = "my-project",
			"us-east5-b", "my-cluster"
	})
	ironwood := with(job(t, "tpu7x-32", launch.GKE), func(j *launch.Job) {
		j.Project, j.Zone, j.Slices,
			j.Spot = "my-project", "us-central1-c", 2, true
	})
	one := with(job(t, "v5litepod-8", launch.GKE), func(j *launch.Job) {
		j.Image, j.Arguments = "eu.gcr.io/p/i:1",
			[]string{`a "b" $c`, "it's"}
	})
	return map[string]text{
		"v5e-16.tpu-vm.sh": {job(t, "v5litepod-16", launch.TPUVM), launch.Script},
		"v4-4x4x20.tpu-vm.sh": {with(job(t, "v4:4x4x20", launch.TPUVM), func(j *launch.Job) {
			j.Name, j.Project, j.Zone, j.Arguments = "odd", "p", "us-central2-b", []string{"a b", "$HOME", "it's", ""}
		}), launch.Script},
		"v5p-32.queued.sh":       {queued, launch.Script},
		"2x-v5e-16.queued.sh":    {slices, launch.Script},
		"v6e-8.gce.sh":           {with(job(t, "v6e-8", launch.GCE), func(j *launch.Job) { j.Spot = true }), launch.Script},
		"tpu7x-16.mig.sh":        {job(t, "tpu7x-16", launch.MIG), launch.Script},
		"v6e-256.gke.sh":         {pods, launch.Script},
		"v6e-256.gke.yaml":       {pods, launch.Manifest},
		"v6e-256.gke.Dockerfile": {pods, launch.Dockerfile},
		"2x-tpu7x-32.gke.sh":     {ironwood, launch.Script},
		"2x-tpu7x-32.gke.yaml":   {ironwood, launch.Manifest},
		"v5e-8.gke.yaml":         {one, launch.Manifest},
	}
}

func TestGoldenTexts(t *testing.T) {
	for name, c := range texts(t) {
		t.Run(name, func(t *testing.T) {
			got, err := c.job.Text(c.part)
			require.NoError(t, err)
			file := filepath.Join("testdata", name)
			if *update {
				require.NoError(t, os.WriteFile(file, []byte(got), 0o644))
			}
			want, err := os.ReadFile(file)
			require.NoError(t, err)
			assert.Equal(t, string(want), got, "go test ./internal/launch -run Golden -update writes it anew")
			if c.part != launch.Script {
				return
			}
			out, err := exec.Command("bash", "-n", file).CombinedOutput()
			assert.NoError(t, err, "%s", out)
			if path, err := exec.LookPath("shellcheck"); err == nil {
				out, err := exec.Command(path, "-s", "bash", "-e", "SC2016,SC2034,SC2317", file).CombinedOutput()
				assert.NoError(t, err, "%s", out)
			}
		})
	}
}

func TestEachSliceHasAScriptWhereItIsOffered(t *testing.T) {
	for _, g := range tpu.Generations() {
		m, ok := launch.MachinesFor(g.Name)
		require.True(t, ok, "%s has a row", g.Name)
		assert.NotEmpty(t, m.CLibrary)
	}
	for slice, places := range map[string][]launch.Service{
		"v2-8": {launch.TPUVM, launch.Queued}, "v3-32": {launch.TPUVM, launch.Queued},
		"v4-8": {launch.TPUVM, launch.Queued, launch.GKE}, "v4-128": {launch.TPUVM, launch.Queued, launch.GKE},
		"v5litepod-1": {launch.TPUVM, launch.Queued, launch.GKE}, "v5litepod-8": {launch.TPUVM, launch.Queued, launch.GKE},
		"v5litepod-256": {launch.TPUVM, launch.Queued, launch.GKE},
		"v5p-8":         {launch.TPUVM, launch.Queued, launch.GCE, launch.GKE}, "v5p-128": {launch.TPUVM, launch.Queued,
			launch.MIG,
			launch.GKE},
		"v6e-8": {launch.TPUVM, launch.Queued, launch.GCE, launch.GKE}, "v6e-256": {launch.TPUVM, launch.Queued, launch.MIG,
			launch.GKE},
		"tpu7x-8": {launch.GCE, launch.GKE}, "tpu7x-128": {launch.MIG, launch.GKE},
	} {
		for _, place := range launch.Services() {
			_, err := job(t, slice, place).Text(launch.Script)
			offered := false
			for _, p := range places {
				offered = offered || p == place
			}
			assert.Equal(t, offered, err == nil, "%s on %s: %v", slice, place, err)
		}
	}
}

func TestWhatCannotBeLaunchedIsSaid(t *testing.T) {
	for want, change := range map[string]func(*launch.Job){
		`--on: no place "aws"; take one of tpu-vm, queued, gce, mig or gke`: func(j *launch.Job) { j.On = "aws" },
		`--on: mig does not have v5e; take tpu-vm, queued or gke`:           func(j *launch.Job) { j.On = launch.MIG },
		`slices: tpu-vm makes one slice, not 2; take queued or gke`:         func(j *launch.Job) { j.Slices = 2 },
		`slices: -1; give a number from 1`:                                  func(j *launch.Job) { j.Slices = -1 },
		`--program: there is none`:                                          func(j *launch.Job) { j.Program = "" },
		`--program: "x; rm -rf /"`: func(
			j *launch.Job) {
			j.Program = "x; rm -rf /"
		},
		`--name: "$(id)"`:    func(j *launch.Job) { j.Name = "$(id)" },
		`--zone: "us'west"`:  func(j *launch.Job) { j.Zone = "us'west" },
		`--project: "-x"`:    func(j *launch.Job) { j.Project = "-x" },
		`--image: "a b"`:     func(j *launch.Job) { j.Image = "a b" },
		`--bucket: "s3://b"`: func(j *launch.Job) { j.Bucket = "s3://b" },
		`arguments: byte 1 of argument 1 ("a\x00b") is zero`: func(j *launch.Job) {
			j.Arguments = []string{"",
				"a\x00b"}
		},
		`--cluster: tpu-vm has no clusters; leave it out, or take gke`: func(j *launch.Job) { j.Cluster = "c" },
		`--bucket: gke copies no program to its machines`: func(j *launch.Job) {
			j.On,
				j.Bucket = launch.GKE, "gs://bucket"
		},
		`--restarts: -1; give a number from 0`: func(j *launch.Job) { j.Restarts = -1 },
		`--fetch: "../x"; write a path below`:  func(j *launch.Job) { j.Fetch = "../x" },
		`--fetch: gke copies no file from its pods`: func(j *launch.Job) {
			j.On, j.Fetch = launch.GKE,
				"x"
		},
		`slice: there is none`: func(
			j *launch.Job) {
			j.Slice = tpu.Accelerator{}
		},
	} {
		_, err := with(job(t, "v5litepod-16", launch.TPUVM), change).Text(launch.Script)
		if assert.ErrorContains(t, err, "launch: "+want) {
			assert.Equal(t, errkind.ValueError, errkind.KindOf(err))
		}
	}
	_, err := with(job(t, "v5litepod-8", launch.GKE), func(j *launch.Job) {
		j.Image, j.Arguments = "i",
			[]string{"ok", "é\xff"}
	}).Text(launch.Manifest)
	assert.ErrorContains(t, err, `launch: arguments: byte 2 of argument 1 ("é\xff") is not UTF-8`)
	_, err = with(job(t, "v5litepod-16", launch.TPUVM), func(j *launch.Job) { j.Arguments = []string{"\xff"} }).Text(
		launch.Script)
	assert.ErrorContains(t, err, `launch: arguments: byte 0 of argument 0 ("\xff") is not UTF-8`)
	_, err = job(t, "v5litepod-8", launch.GKE).Text(launch.Manifest)
	assert.ErrorContains(t, err,
		"launch: --image: the manifest names an image, and there is none; give the image, or the project and the zone")
	_, err = job(t, "v5litepod-8", launch.TPUVM).Text(launch.Manifest)
	assert.ErrorContains(t, err, "launch: --part: tpu-vm has no manifest")
	_, err = with(job(t, "v5litepod-8", launch.GKE), func(j *launch.Job) { j.Slices = 2 }).Text(launch.Script)
	assert.ErrorContains(t, err, "GKE joins slices of several machines only, and v5litepod-8 is one machine")
}

// Every flag that a script gives is one that gcloud has: gcloud-flags.txt is from the help of
// Google Cloud SDK 528.
func TestTheFlagsAreGclouds(t *testing.T) {
	data, err := os.ReadFile("testdata/gcloud-flags.txt")
	require.NoError(t, err)
	flags := map[string]string{}
	for line := range strings.Lines(string(data)) {
		command, list, ok := strings.Cut(strings.TrimSpace(line), ":")
		require.True(t, ok)
		flags[command] = list + " "
	}
	for name, job := range jobs(t) {
		c := newCloud(t, job)
		code, said := c.run(0)
		require.Zero(t, code, said)
		for _, call := range c.calls() {
			words := strings.Fields(call)
			if words[0] != "gcloud" {
				continue
			}
			command := ""
			for n := min(len(words), 6); n > 1 && command == ""; n-- {
				if _, ok := flags[strings.Join(words[1:n], " ")]; ok {
					command = strings.Join(words[1:n], " ")
				}
			}
			if !assert.NotEmpty(t, command, "%s: no such command: %s", name, call) {
				continue
			}
			before, _, _ := strings.Cut(call, "--command=") // its value has words of its own
			for _, word := range strings.Fields(before) {
				flag, _, _ := strings.Cut(word, "=")
				if strings.HasPrefix(flag, "--") && flag != "--project" && flag != "--quiet" && flag != "--format" {
					assert.Contains(t, flags[command], " "+flag+" ", "%s: %s", name, call)
				}
			}
		}
	}
}

// The same text in every process, and none that needs another shell than bash.
func TestTextsAreTheSameEachTime(t *testing.T) {
	for name, c := range texts(t) {
		first, err := c.job.Text(c.part)
		require.NoError(t, err)
		second, err := c.job.Text(c.part)
		require.NoError(t, err)
		assert.Equal(t, first, second, name)
		assert.False(t, bytes.Contains([]byte(first), []byte("<no value>")), name)
	}
}
