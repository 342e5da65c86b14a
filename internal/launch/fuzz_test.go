package launch_test

import (
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/internal/launch"
	"github.com/tpustrategy/tpustrategy/tpu"
)

// pod is what Kubernetes reads of a manifest.
type pod struct {
	Metadata struct{ Name string }
	Spec     struct {
		Template       template
		ReplicatedJobs []struct {
			Template struct{ Spec struct{ Template template } }
		} `yaml:"replicatedJobs"`
	}
}

type template struct {
	Spec struct {
		Containers []struct {
			Image string
			Args  []string
		}
	}
}

// expand is what Kubernetes makes of an argument where there are no variables: third_party/forked/
// golang/expansion of k8s.io/kubernetes.
func expand(argument string) string {
	var b strings.Builder
	for i := 0; i < len(argument); i++ {
		switch {
		case argument[i] != '$' || i+1 == len(argument):
			b.WriteByte(argument[i])
		case argument[i+1] == '$':
			b.WriteByte('$')
			i++
		case argument[i+1] == '(':
			if end := strings.IndexByte(argument[i:], ')'); end >= 0 {
				return "a variable was put in"
			}
			b.WriteString("$(")
			i++
		default:
			b.WriteByte('$')
			b.WriteRune(rune(argument[i+1])) // a byte, taken for a letter
			i++
		}
	}
	return b.String()
}

// words reads what Quote wrote, as bash does, up to a word of another form.
func words(t *testing.T, text string) (list []string) {
	for {
		text = strings.TrimLeft(text, " ")
		var b strings.Builder
		switch {
		case strings.HasPrefix(text, `"$@")`):
			return list
		case text == "":
			t.Fatal("the words do not end")
		}
		for text != "" && text[0] != ' ' {
			switch {
			case strings.HasPrefix(text, "$'"):
				i := 2
				for ; text[i] != '\''; i++ {
					switch {
					case text[i] != '\\':
						b.WriteByte(text[i])
					case text[i+1] == '\'' || text[i+1] == '\\':
						i++
						b.WriteByte(text[i])
					default:
						n, err := strconv.ParseUint(text[i+1:i+4], 8, 8)
						if err != nil {
							t.Fatalf("%q: %v", text[i:], err)
						}
						b.WriteByte(byte(n))
						i += 3
					}
				}
				text = text[i+1:]
			case text[0] == '\'':
				inside, after, ok := strings.Cut(text[1:], "'")
				if !ok {
					t.Fatalf("%q does not end", text)
				}
				b.WriteString(inside)
				text = after
			case text[0] == '\\':
				b.WriteByte(text[1])
				text = text[2:]
			case strings.ContainsRune("$`\"();&|<>#*?[]{}~!\n\t\r", rune(text[0])):
				t.Fatalf("bash reads %q otherwise", text)
			default:
				b.WriteByte(text[0])
				text = text[1:]
			}
		}
		list = append(list, b.String())
	}
}

var (
	imageLine = regexp.MustCompile(`(?m)^( *image: )"IMAGE_OF_THE_JOB"$`)
	nameLine  = regexp.MustCompile(`(?m)^  name: "NAME_OF_THE_JOB"$`)
)

// FuzzTexts: whatever the options, a text is refused with an error of a kind, or the arguments in it
// are those of the job, and no option leaves its place.
func FuzzTexts(f *testing.F) {
	for i, word := range hostileWords {
		f.Add(uint8(i), "job", "my-project", "us-east5-b", "", "c", word, "tpustrategy launch "+launch.QuoteBash(word), word)
		f.Add(uint8(i), word, word, word, word, word, "x", word, word)
	}
	f.Add(uint8(4), "true", "p", "us-east5-b", "1.0", "null", "\xff", "a\nb", "")
	slice := map[launch.Service]string{launch.TPUVM: "v5litepod-16", launch.Queued: "v5p-32", launch.GCE: "v6e-8",
		launch.MIG: "tpu7x-16", launch.GKE: "v6e-16"}
	f.Fuzz(func(t *testing.T, place uint8, name, project, zone, image, cluster, first, command, second string) {
		on := launch.Services()[int(place)%5]
		a, err := tpu.ParseAccelerator(slice[on])
		if err != nil {
			t.Fatal(err)
		}
		j := launch.Job{Slice: a, On: on, Name: name, Project: project, Zone: zone, Image: image,
			Program: "./examples/multihost", Arguments: []string{first, second}, Command: command}
		if on == launch.GKE {
			j.Cluster = cluster
		} else {
			j.Bucket = cluster
		}
		script, err := j.Text(launch.Script)
		if err != nil {
			if errkind.KindOf(err) != errkind.ValueError || strings.ContainsAny(err.Error(), "\n\x1b") {
				t.Fatalf("%q", err)
			}
			return
		}
		if !utf8.ValidString(script) {
			t.Fatal("the script is no text")
		}
		head, _, _ := strings.Cut(script, "set -euo pipefail")
		for line := range strings.Lines(head) {
			if !strings.HasPrefix(line, "#") || strings.ContainsAny(strings.TrimSuffix(line, "\n"), "\r\u0085\u2028\u2029\x1b") {
				t.Fatalf("%q leaves its comment", line)
			}
		}
		if on != launch.GKE {
			_, rest, ok := strings.Cut(script, "\narguments=(")
			if got := words(t, rest); !ok || !slices.Equal(got, j.Arguments) {
				t.Fatalf("%q instead of %q", got, j.Arguments)
			}
			return
		}
		_, carried, _ := strings.Cut(script, "<<'END_OF_MANIFEST'\n")
		carried, _, _ = strings.Cut(carried, "\nEND_OF_MANIFEST\n")
		if j.Image == "" {
			j.Image = "an/image:latest"
		}
		manifest, err := j.Text(launch.Manifest)
		if err != nil {
			t.Fatal(err)
		}
		if name == "" {
			name = "multihost"
		}
		carried = imageLine.ReplaceAllString(carried, `${1}"`+j.Image+`"`)
		carried = nameLine.ReplaceAllString(carried, `  name: "`+name+`"`)
		for _, text := range []string{manifest, carried} {
			var p pod
			if err := yaml.Unmarshal([]byte(text), &p); err != nil {
				t.Fatal(err)
			}
			c := p.Spec.ReplicatedJobs[0].Template.Spec.Template.Spec.Containers[0]
			if len(c.Args) != 2 || expand(c.Args[0]) != first || expand(c.Args[1]) != second || p.Metadata.Name != name ||
				c.Image != j.Image {
				t.Fatalf("%+v and %q %q instead of %+v", c, p.Metadata.Name, text, j)
			}
		}
	})
}
