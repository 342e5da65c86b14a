package launch

import (
	"cmp"
	"embed"
	"fmt"
	"strconv"
	"strings"
	"text/template"
	"unicode/utf8"

	"github.com/tpustrategy/tpustrategy/internal/command"
	"github.com/tpustrategy/tpustrategy/tpu"
)

//go:embed templates
var templates embed.FS

// Placeholders in the manifest that a script contains. The script replaces them by the name and the
// image of the job.
const (
	nameToken  = "NAME_OF_THE_JOB"
	imageToken = "IMAGE_OF_THE_JOB"
)

// installCommand prints the path of the pinned libtpu. The flag -mod=mod lets it run in a module
// whose go.sum lacks the dependencies of the command.
const installCommand = `go run -mod=mod github.com/tpustrategy/tpustrategy/cmd/tpustrategy install tpu --path`

// templateData contains the values that the templates of the documents use.
type templateData struct {
	Job
	Machines
	Title, Look, ID        string
	Binary, Install        string
	Shape, Topology        string
	MachineType            string
	ImageProject, BootDisk string
	ManifestImage          string
	Hosts, ChipsPerHost    int
	Grace                  int
	Stuck                  int
	Crashed, Fruitless     int
	ArgumentsYAML          string
	Checks                 []fieldRule
	Words                  string // quoted arguments, each followed by a space
	Environment            []string
	Copies, Policy         bool
	Resource, State        string
	Succeeded, Failed      string
	Selector, BuildWith    string
	ManifestText           string
	DockerfileText         string
}

// Text returns the generated document of the job. Equal jobs result in equal documents.
func (j Job) Text(part Document) (string, error) {
	if err := j.check(); err != nil {
		return "", err
	}
	v := j.templateData()
	switch part {
	case Script:
		if j.On == GKE {
			inside := v
			inside.ID, inside.ManifestImage = nameToken, imageToken
			v.ManifestText = render("manifest.yaml.tmpl", inside)
			v.DockerfileText = render("Dockerfile.tmpl", inside)
		}
		return render(string(j.On)+".sh.tmpl", v), nil
	case Manifest, Dockerfile:
		if j.On != GKE {
			return "", jobError("part", "take script, or gke", "%s has no %s", j.On, part)
		}
		if part == Dockerfile {
			return render("Dockerfile.tmpl", v), nil
		}
		if v.ManifestImage == "" {
			return "", jobError("image", "give the image, or the project and the zone, from which its name follows",
				"the manifest names an image, and there is none")
		}
		return render("manifest.yaml.tmpl", v), nil
	}
	return "", jobError("part", "take script, manifest or dockerfile", "no part %q", part)
}

func (j Job) templateData() templateData {
	m, _ := MachinesFor(j.Slice.Generation().Name)
	a := j.Slice
	_, shape, _ := strings.Cut(a.String(), ":")
	v := templateData{Job: j, Machines: m, ID: j.resourceName(), Binary: j.binaryName(), Install: installCommand,
		Hosts: a.Hosts(), ChipsPerHost: chipsPerHost(a),
		Topology: shape, ImageProject: ImageProject, BootDisk: "100GB",
		Copies: j.On != GKE, Grace: 60, Stuck: command.Unavailable, Crashed: exitCrashed, Fruitless: exitNoProgress}
	v.Name, v.Slices = v.ID, max(j.Slices, 1)
	v.Command = cmp.Or(v.Command, "package internal/launch")
	if !isPrintable(v.Command) { // a line break would end the comment
		v.Command = strconv.Quote(v.Command)
	}
	if m.Type != "" {
		v.MachineType = fmt.Sprintf(m.Type, v.ChipsPerHost)
	}
	if v.Spot {
		v.Grace = 25 // a spot machine stops 30 seconds after the notice
	}
	v.Shape = "--accelerator-type=" + a.Type()
	if usual, err := tpu.ParseAccelerator(a.Type()); err != nil || usual != a {
		v.Shape = fmt.Sprintf("--type=%s --topology=%s", a.Generation().TypePrefix, v.Topology)
	}
	var words, list []string
	for _, argument := range j.Arguments {
		words, list = append(words, QuoteBash(argument)), append(list, yamlScalar(argument))
	}
	v.Words = strings.Join(append(words, ""), " ")
	v.ArgumentsYAML = "[" + strings.Join(list, ", ") + "]"
	v.Checks = j.fieldRules()
	v.Title = j.summary()
	switch j.On {
	case TPUVM, Queued:
		v.Image = cmp.Or(j.Image, m.Runtime)
		v.Look = "gcloud compute tpus tpu-vm list --zone=ZONE; gcloud compute tpus queued-resources list --zone=ZONE"
	case GCE, MIG:
		v.Image = cmp.Or(j.Image, m.ImageFamily)
		v.Look = "gcloud compute instances list; gcloud compute instance-groups managed list"
	case GKE:
		v.setGKEFields()
	}
	if j.On == GCE {
		// The metadata of an instance may not identify it as a complete slice.
		v.Environment = []string{`TF_CONFIG='{"cluster":{"worker":["localhost:8470"]},"task":{"type":"worker","index":0}}'`}
	}
	return v
}

// setGKEFields sets the fields that only the GKE templates use.
func (v *templateData) setGKEFields() {
	v.Look = "gcloud container node-pools list --cluster=CLUSTER --location=LOCATION"
	v.Policy = v.Generation == "tpu7x" && v.Hosts > 1 // GKE creates the placement policies of older generations
	v.ManifestImage = v.Job.Image
	if v.ManifestImage == "" && v.Project != "" && v.Zone != "" {
		region := v.Zone[:max(strings.LastIndexByte(v.Zone, '-'), 0)]
		v.ManifestImage = fmt.Sprintf("%s-docker.pkg.dev/%s/tpustrategy/%s:latest", region, v.Project, v.ID)
	}
	v.Image = cmp.Or(v.Job.Image, "$REGION-docker.pkg.dev/$PROJECT/tpustrategy/$NAME:latest")
	v.BuildWith = fmt.Sprintf("docker build -f Dockerfile -t %s . # in the folder of the Go module",
		cmp.Or(v.ManifestImage, "IMAGE"))
	if v.Hosts == 1 {
		v.Resource, v.Selector = "job", "job-name"
		v.State = `kubectl get job "$NAME" --output=jsonpath='{.status.conditions[?(@.status=="True")].type}'`
		v.Succeeded, v.Failed = "*Complete*", "*Failed*"
		return
	}
	v.Resource, v.Selector = "jobset", "jobset.sigs.k8s.io/jobset-name"
	v.State = `kubectl get jobset "$NAME" --output=jsonpath='{.status.terminalState}'`
	v.Succeeded, v.Failed = "Completed", "Failed"
}

// yamlScalar returns an argument as a double-quoted YAML string. It escapes $ where Kubernetes
// would replace $(NAME) or $$.
func yamlScalar(argument string) string {
	var b strings.Builder
	for i := range len(argument) {
		b.WriteByte(argument[i])
		if argument[i] == '$' && i+1 < len(argument) && (argument[i+1] == '$' || argument[i+1] == '(' ||
			argument[i+1] >= utf8.RuneSelf) {
			b.WriteByte('$')
		}
	}
	return strconv.Quote(b.String())
}

func (j Job) summary() string {
	a, n := j.Slice, j.Slice.Hosts()
	machines := "one machine"
	if n > 1 {
		machines = fmt.Sprintf("%d machines", n)
	}
	text := fmt.Sprintf("Runs %s on %s: %s of %d chips", j.Program, a.Type(), machines, chipsPerHost(a))
	if j.Slices > 1 {
		text = fmt.Sprintf("Runs %s on %d slices of %s, each of %s of %d chips", j.Program, j.Slices, a.Type(), machines,
			chipsPerHost(a))
	}
	places := map[Service]string{TPUVM: "a node of the Cloud TPU API", Queued: "a queued resource of the Cloud TPU API",
		GCE: "an instance of Compute Engine", MIG: "a managed instance group of Compute Engine",
		GKE: "Google Kubernetes Engine"}
	text += ", from " + places[j.On]
	if j.Spot {
		text += ", on spot machines"
	}
	return text + "."
}

// render executes an embedded template. It panics on an error, because the tests cover all templates.
func render(name string, v templateData) string {
	functions := template.FuncMap{"indent": indent, "quote": QuoteBash, "pod": func(templateData) (string,
		error) {
		return "", nil
	}}
	t := template.New(name).Funcs(functions)
	functions["pod"] = func(v templateData) (string, error) {
		var b strings.Builder
		err := t.ExecuteTemplate(&b, "pod", v)
		return b.String(), err
	}
	t = template.Must(t.Funcs(functions).ParseFS(templates, "templates/head.sh.tmpl", "templates/"+name))
	var b strings.Builder
	if err := t.ExecuteTemplate(&b, name, v); err != nil {
		panic(err) // the tests execute all templates
	}
	return strings.TrimRight(b.String(), "\n") + "\n"
}

func indent(by int, text string) string {
	space := strings.Repeat(" ", by)
	return space + strings.ReplaceAll(strings.TrimRight(text, "\n"), "\n", "\n"+space)
}
