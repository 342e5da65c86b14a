package launch

import (
	"fmt"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/tpu"
)

// start.sh on a machine replaces the exit code of a failed program by one of these codes. exitCrashed
// means that the program saved a checkpoint since its start, and exitNoProgress that it did not.
const (
	exitCrashed    = 76
	exitNoProgress = 77
)

// Job describes a program to run on TPU slices.
type Job struct {
	// Slice is the accelerator type of each slice. Slices is the number of slices; 0 means 1.
	Slice  tpu.Accelerator
	Slices int
	// On is the Google Cloud service that provides the machines.
	On Service
	// Name is the name of the cloud resources. The default is derived from the name of the program.
	Name string
	// Project and Zone select the Google Cloud project and the zone. If they are empty, the script
	// uses the environment variables PROJECT and ZONE.
	Project, Zone string
	// Spot requests spot machines, which are cheaper and can be preempted at any time.
	Spot bool
	// Image is the runtime version for TPUVM and Queued, the image family for GCE and MIG, or the
	// container image for GKE. The default depends on the TPU generation. For GKE, it is an image
	// in the registry of the project.
	Image string
	// Program is the Go package of the program, in the syntax of go build.
	Program string
	// Arguments are the command-line arguments of the program on every host.
	Arguments []string
	// Bucket is a folder such as gs://bucket/folder. The script uploads the program to it once, and
	// the machines download the program. Without a bucket, the script copies the program to each
	// machine. It must be empty for GKE.
	Bucket string
	// Fetch is a file that the program writes, relative to its working directory. Whenever the
	// program exits, the file is copied to the directory of the script, with the name of the
	// machine as a prefix. It must be empty for GKE, where the program must write to a bucket.
	Fetch string
	// Cluster and Location select the GKE cluster. The default of Location is the region of the zone.
	Cluster, Location string
	// Restarts is the maximum number of restarts after a preemption, or after a failure if the
	// program has saved a checkpoint. On GKE, preemptions do not count.
	Restarts int
	// Command is the command line that a comment in each document shows. The default names this package.
	Command string
}

// Document is a kind of file that is generated for a job.
type Document string

// The parts.
const (
	// Script is a shell script that creates the resources, runs the program and deletes the resources.
	Script Document = "script"
	// Manifest is the Kubernetes manifest. Only GKE has one.
	Manifest Document = "manifest"
	// Dockerfile builds the container image that the manifest uses. Only GKE has one.
	Dockerfile Document = "dockerfile"
)

// jobError returns an error for an invalid field of a job. If the command launch has a flag for the
// field, field is the name of the flag.
func jobError(field, hint, format string, args ...any) error {
	if !slices.Contains([]string{"slice", "slices", "arguments"}, field) {
		field = "--" + field // flag of the command launch
	}
	return &errkind.Fault{Op: "launch: " + field, Reason: fmt.Sprintf(format, args...), Hint: hint,
		Class: errkind.ValueError}
}

// Regular expressions for values that are inserted into a script or a manifest without quoting. Go
// checks the fields of a job, and bash checks environment variables, so the syntax must be valid in
// both. Names are RFC 1035 labels, as Google Cloud requires. They are short enough for the suffixes
// that the scripts append.
const (
	nameForm = `^[a-z]([-a-z0-9]{0,38}[a-z0-9])?$`
	// a node pool name has at most 40 characters, including the suffix -0
	poolForm    = `^[a-z]([-a-z0-9]{0,34}[a-z0-9])?$`
	placeForm   = `^[a-z][a-z0-9]{0,30}(-[a-z0-9]{1,20}){1,4}$`
	projectForm = `^[a-z0-9][-a-z0-9.:]{0,62}$`
	imageForm   = `^[A-Za-z0-9][-A-Za-z0-9._/:@]{0,254}$`
	programForm = `^[A-Za-z0-9._][-A-Za-z0-9._/@]{0,254}$`
	fetchForm   = `^[A-Za-z0-9_][-A-Za-z0-9._/]{0,200}$`
	countForm   = `^(0|[1-9][0-9]{0,8})$`
	bucketForm  = `^gs://[a-z0-9][-a-z0-9._]{1,61}[a-z0-9](/[-A-Za-z0-9._]+)*$`
)

// fieldRule is the syntax of a job field, and of the environment variable that overrides the field.
type fieldRule struct {
	Field    string
	Variable string // environment variable of the script, or empty
	Text     string
	Pattern  string
	Hint     string
}

func (j Job) fieldRules() []fieldRule {
	name, letters := nameForm, 40
	if j.On == GKE {
		name, letters = poolForm, 36
	}
	list := []fieldRule{
		{"name", "NAME", j.Name, name, fmt.Sprintf("small letters, digits and -, at most %d, from a letter on", letters)},
		{"project", "PROJECT", j.Project, projectForm, "a project's id, such as my-project"},
		{"zone", "ZONE", j.Zone, placeForm, "a zone, such as us-west4-a"},
		{"image", "IMAGE", j.Image, imageForm, "letters, digits and -._/:@"},
		{"program", "", j.Program, programForm, "a Go package, such as ./examples/multihost"},
		{"fetch", "", j.Fetch, fetchForm, "a path such as accept.jsonl.gz"},
		{"restarts", "TRIES", "", countForm, "a number"},
		{"restarts", "PAUSE", "", `^[0-9]{1,9}([.][0-9]{1,9})?$`, "a number of seconds"},
	}
	if j.On == GKE {
		return append(list, fieldRule{"cluster", "CLUSTER", j.Cluster, nameForm,
			"small letters, digits and -, at most 40, from a letter on"},
			fieldRule{"location", "LOCATION", j.Location, placeForm, "a region or a zone, such as us-west4"})
	}
	return append(list, fieldRule{"bucket", "BUCKET", j.Bucket, bucketForm, "gs://bucket or gs://bucket/folder"},
		fieldRule{"restarts", "FRUITLESS", "", countForm, "a number"},
		fieldRule{"restarts", "RESTARTS", strconv.Itoa(j.Restarts), countForm, "a number from 0 to 999999999"})
}

// check returns an error for an invalid job.
func (j Job) check() error {
	m, ok := MachinesFor(j.Slice.Generation().Name)
	if !ok {
		return jobError("slice", "make it with tpu.ParseAccelerator", "there is none")
	}
	several, hosts, chips := j.Slices > 1, j.Slice.Hosts(), chipsPerHost(j.Slice)
	switch {
	case j.Slices < 0:
		return jobError("slices", "give a number from 1", "%d", j.Slices)
	case j.Restarts < 0:
		return jobError("restarts", "give a number from 0", "%d", j.Restarts)
	case !slices.Contains(Services(), j.On):
		return jobError("on", "take one of "+joinServices(Services()), "no place %q", j.On)
	case !m.isOffered(j.On):
		return jobError("on", "take "+joinServices(m.availableServices()), "%s does not have %s", j.On, m.Generation)
	case several && j.On != Queued && j.On != GKE:
		return jobError("slices", "take queued or gke", "%s makes one slice, not %d", j.On, j.Slices)
	case several && j.On == GKE && hosts == 1:
		return jobError("slices", "take slices of several machines",
			"GKE joins slices of several machines only, and %s is one machine", j.Slice.Type())
	case j.On == GCE && hosts > 1:
		return jobError("on", "take mig", "an instance is one machine, and %s has %d", j.Slice.Type(), hosts)
	case j.On == MIG && hosts == 1:
		return jobError("on", "take gce", "a group is a slice of several machines, and %s is one", j.Slice.Type())
	case m.Type != "" && !slices.Contains(m.Chips, chips) && j.On != TPUVM && j.On != Queued:
		return jobError("slice", fmt.Sprintf("machines have %v", m.Chips), "there is no machine with %d chips of %s", chips,
			m.Generation)
	case j.On != GKE && (j.Cluster != "" || j.Location != ""):
		return jobError("cluster", "leave it out, or take gke", "%s has no clusters", j.On)
	case j.On == GKE && j.Bucket != "":
		return jobError("bucket", "leave it out: the image has the program", "gke copies no program to its machines")
	case j.On == GKE && j.Fetch != "":
		return jobError("fetch", "have the program write to a bucket", "gke copies no file from its pods")
	case strings.Contains(j.Fetch, ".."):
		return jobError("fetch", "write a path below the program's folder", "%.60q", j.Fetch)
	case j.Program == "":
		return jobError("program", "give a Go package such as ./examples/multihost", "there is none")
	}
	if other, err := tpu.ParseAccelerator(j.Slice.Type()); (err != nil || other != j.Slice) &&
		(j.On == TPUVM || j.On == Queued) && j.Slice.Generation().Dims == 2 {
		return jobError("slice", "take a type such as v5litepod-16", "the Cloud TPU API makes no %s", j.Slice)
	}
	for _, f := range j.fieldRules() {
		if f.Text != "" && !regexp.MustCompile(f.Pattern).MatchString(f.Text) {
			return jobError(f.Field, "write "+f.Hint, "%.60q", f.Text)
		}
	}
	for i, argument := range j.Arguments {
		at, why, hint := strings.IndexByte(argument, 0), "is zero, which ends an argument", "leave it out"
		if at < 0 {
			at, why, hint = invalidUTF8Index(argument), "is not UTF-8", "have the program read it from a file"
		}
		if at >= 0 {
			return jobError("arguments", hint, "byte %d of argument %d (%.60q) %s", at, i, argument, why)
		}
	}
	return nil
}

// invalidUTF8Index returns the index of the first byte that is not valid UTF-8, or -1.
func invalidUTF8Index(text string) int {
	for i, r := range text {
		if r == utf8.RuneError && !strings.HasPrefix(text[i:], string(r)) {
			return i
		}
	}
	return -1
}

// joinServices joins names, as in "a, b or c".
func joinServices(list []Service) string {
	var names []string
	for _, p := range list {
		names = append(names, string(p))
	}
	if len(names) < 2 {
		return strings.Join(names, "")
	}
	return strings.Join(names[:len(names)-1], ", ") + " or " + names[len(names)-1]
}

func (j Job) binaryName() string {
	name := path.Base(path.Clean(strings.TrimSuffix(j.Program, "/...")))
	switch name {
	case ".", "..", "/", "pid", "keeper", "code", "code.new", "log", "log.before", "round", "boot", "saved", "saved.new",
		"saved.before", "goodput", "start.sh", "keep.sh", "libtpu.so": // names that are not valid or that the script uses
		return "program"
	}
	return strings.TrimLeft(name, "-") // a leading - would be parsed as a flag
}

// resourceName returns Name or, if it is empty, a valid name that is derived from the program.
func (j Job) resourceName() string {
	if j.Name != "" {
		return j.Name
	}
	name := strings.Trim(strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= '0' && r <= '9', r == '-':
			return r
		case r >= 'A' && r <= 'Z':
			return r + 'a' - 'A'
		}
		return '-'
	}, j.binaryName()), "-0123456789")
	if len(name) > 36 {
		name = strings.TrimRight(name[:36], "-")
	}
	if !regexp.MustCompile(poolForm).MatchString(name) {
		return "program"
	}
	return name
}

// QuoteBash quotes a word for bash, without line breaks. It escapes characters that are not
// printable and bytes that are not valid UTF-8. The word must not contain a zero byte.
func QuoteBash(word string) string {
	switch {
	case word != "" && strings.Trim(word,
		"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./=:,+@%") == "":
		return word
	case isPrintable(word):
		return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
	}
	var b strings.Builder
	b.WriteString("$'")
	for i, r := range word {
		switch {
		case r == '\'' || r == '\\':
			b.WriteByte('\\')
			b.WriteRune(r)
		case r == utf8.RuneError || !unicode.IsPrint(r):
			_, n := utf8.DecodeRuneInString(word[i:]) // n is 1 for an invalid byte
			for _, c := range []byte(word[i : i+n]) {
				fmt.Fprintf(&b, `\%03o`, c) // bash reads at most three octal digits
			}
		default:
			b.WriteRune(r)
		}
	}
	return b.String() + "'"
}

func isPrintable(text string) bool {
	return utf8.ValidString(text) && !strings.ContainsFunc(text, func(r rune) bool { return !unicode.IsPrint(r) })
}
