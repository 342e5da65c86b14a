package launch_test

import (
	"bytes"
	"errors"
	"io"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"github.com/tpustrategy/tpustrategy/internal/command"
	"github.com/tpustrategy/tpustrategy/internal/launch"
)

// The fields of the objects that manifests have, as far as these use them. Sources: the Go types of
// k8s.io/api batch/v1 and core/v1, and of kubernetes-sigs/jobset, api/jobset/v1alpha2.
var (
	meta      = fields{"name": "", "annotations": anyFields, "labels": anyFields}
	container = fields{"name": "", "image": "", "args": "", "env": fields{"name": "", "value": ""},
		"ports": fields{"containerPort": ""}, "resources": fields{"requests": anyFields, "limits": anyFields},
		"securityContext": fields{"privileged": ""}}
	podSpec = fields{"terminationGracePeriodSeconds": "", "restartPolicy": "", "nodeSelector": anyFields,
		"hostNetwork": "", "dnsPolicy": "",
		"tolerations": fields{"key": "", "operator": "", "value": "", "effect": ""}, "containers": container}
	jobSpec = fields{"completionMode": "", "completions": "", "parallelism": "", "backoffLimit": "",
		"podFailurePolicy": fields{"rules": fields{"action": "", "onPodConditions": fields{"type": "", "status": ""},
			"onExitCodes": fields{"containerName": "", "operator": "", "values": ""}}},
		"template": fields{"metadata": meta, "spec": podSpec}}
	objects = map[string]fields{
		"batch/v1 Job": {"apiVersion": "", "kind": "", "metadata": meta, "spec": jobSpec},
		"jobset.x-k8s.io/v1alpha2 JobSet": {"apiVersion": "", "kind": "", "metadata": meta, "spec": fields{
			"failurePolicy": fields{"maxRestarts": "", "restartStrategy": "", "rules": fields{"name": "", "action": "",
				"onJobFailureReasons": ""}},
			"replicatedJobs": fields{"name": "", "replicas": "", "template": fields{"metadata": meta, "spec": jobSpec}}}},
	}
)

type fields map[string]any

// anyFields are the user's own names.
var anyFields = "any"

// hold checks a value's fields against those that there are.
func hold(t *testing.T, path string, value, allowed any) {
	switch v := value.(type) {
	case map[string]any:
		if allowed == any(anyFields) {
			return
		}
		known, ok := allowed.(fields)
		if !assert.True(t, ok, "%s has no fields", path) {
			return
		}
		for name, each := range v {
			if assert.Contains(t, known, name, "%s.%s: there is no such field", path, name) {
				hold(t, path+"."+name, each, known[name])
			}
		}
	case []any:
		for _, each := range v {
			hold(t, path, each, allowed)
		}
	default:
		assert.Equal(t, any(""), allowed, "%s has fields", path)
	}
}

func parse(t *testing.T, text string) map[string]any {
	decoder := yaml.NewDecoder(bytes.NewReader([]byte(text)))
	var object map[string]any
	require.NoError(t, decoder.Decode(&object), "%s", text)
	assert.True(t, errors.Is(decoder.Decode(new(any)), io.EOF), "one object")
	return object
}

// at walks into an object: names, and numbers for places in a list.
func at(t *testing.T, value any, path ...any) any {
	for _, step := range path {
		switch step := step.(type) {
		case string:
			object, ok := value.(map[string]any)
			require.True(t, ok, "%v", path)
			value = object[step]
		case int:
			list, ok := value.([]any)
			require.True(t, ok && step < len(list), "%v", path)
			value = list[step]
		}
	}
	return value
}

func TestManifestsAreOfKubernetes(t *testing.T) {
	for name, c := range texts(t) {
		if c.job.On != launch.GKE {
			continue
		}
		t.Run(name, func(t *testing.T) {
			j := with(c.job, func(j *launch.Job) { j.Image = "example.com/i:1" })
			text, err := j.Text(launch.Manifest)
			require.NoError(t, err)
			object := parse(t, text)
			kind := object["apiVersion"].(string) + " " + object["kind"].(string)
			require.Contains(t, objects, kind)
			hold(t, kind, object, objects[kind])

			hosts, spec := j.Slice.Hosts(), at(t, object, "spec")
			if hosts > 1 {
				assert.Equal(t, max(j.Slices, 1), at(t, spec, "replicatedJobs", 0, "replicas"))
				assert.Equal(t, 10, at(t, spec, "failurePolicy", "maxRestarts"))
				assert.Equal(t, []any{"PodFailurePolicy"}, at(t, spec, "failurePolicy", "rules", 0, "onJobFailureReasons"))
				spec = at(t, spec, "replicatedJobs", 0, "template", "spec")
				assert.Equal(t, 0, at(t, spec, "backoffLimit"), "a pod that fails ends its job, and JobSet starts all")
			} else {
				assert.Equal(t, 10, at(t, spec, "backoffLimit"))
			}
			assert.Equal(t, "Indexed", at(t, spec, "completionMode"))
			assert.Equal(t, hosts, at(t, spec, "completions"))
			assert.Equal(t, hosts, at(t, spec, "parallelism"))
			assert.Equal(t, []any{command.Interrupted}, at(t, spec, "podFailurePolicy", "rules", 1, "onExitCodes", "values"))
			pod := at(t, spec, "template", "spec")
			assert.Equal(t, "Never", at(t, pod, "restartPolicy"), "podFailurePolicy needs it")
			assert.Equal(t, at(t, spec, "podFailurePolicy", "rules", 1, "onExitCodes", "containerName"), at(t, pod, "containers",
				0, "name"))
			var args []any
			for _, a := range j.Arguments {
				args = append(args, a)
			}
			assert.Equal(t, args, at(t, pod, "containers", 0, "args"))
			for _, what := range []string{"requests", "limits"} {
				assert.Equal(t, j.Slice.Chips()/hosts, at(t, pod, "containers", 0, "resources", what, "google.com/tpu"))
			}
			assert.Equal(t, j.Spot, at(t, pod, "nodeSelector", "cloud.google.com/gke-spot") == "true")
			assert.Equal(t, j.Slices > 1, at(t, pod, "hostNetwork") == true)
		})
	}
}

// A script carries its manifest: what it puts in place of the names in it is whole.
func TestAScriptsOwnManifestIsTheSame(t *testing.T) {
	j := with(job(t, "v6e-256", launch.GKE), func(j *launch.Job) {
		j.Project, j.Zone, j.Cluster = "my-project",
			"us-east5-b", "c"
	})
	script, err := j.Text(launch.Script)
	require.NoError(t, err)
	_, text, ok := strings.Cut(script, "<<'END_OF_MANIFEST'\n")
	require.True(t, ok)
	text, _, ok = strings.Cut(text, "END_OF_MANIFEST\n")
	require.True(t, ok)
	text = strings.NewReplacer("NAME_OF_THE_JOB", "multihost", "IMAGE_OF_THE_JOB",
		"us-east5-docker.pkg.dev/my-project/tpustrategy/multihost:latest").Replace(text)
	manifest, err := j.Text(launch.Manifest)
	require.NoError(t, err)
	assert.Equal(t, manifest, text)
}

// The codes in the texts are those by which programs say that they are to be started again.
func TestTheCodesOfARestartAreInTheScripts(t *testing.T) {
	script, err := job(t, "v5litepod-16", launch.TPUVM).Text(launch.Script)
	require.NoError(t, err)
	for _, code := range []int{command.Interrupted, command.Unavailable} {
		assert.Regexp(t, regexp.MustCompile(`(?m)^    `+strconv.Itoa(code)+`\) say`), script)
	}
	dockerfile, err := os.ReadFile("testdata/v6e-256.gke.Dockerfile")
	require.NoError(t, err)
	assert.Contains(t, string(dockerfile), "golang:1.26-bookworm")
	assert.Contains(t, string(dockerfile), "debian:bookworm-slim", "the C library of the image that builds")
}
