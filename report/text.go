package report

import (
	_ "embed"
	"fmt"
	"io"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"text/tabwriter"
	"text/template"
	"unicode"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/internal/units"
	"github.com/tpustrategy/tpustrategy/report/cost"
	"github.com/tpustrategy/tpustrategy/report/memory"
)

//go:embed page.txt
var textForm string

// functions are the functions of the templates for the text and the page.
var functions = template.FuncMap{
	"bytes": units.Bytes, "si": units.SI, "seconds": units.Seconds, "percent": percentText,
	"accessed": func(x float64) string { return units.Bytes(int64(x)) },
	"orNone": func(seconds float64) string {
		if seconds > 0 {
			return units.Seconds(seconds)
		}
		return "-"
	},
	// once returns a text in row 0, and "" in later rows.
	"once": func(row int, text string) string {
		if row > 0 {
			return ""
		}
		return text
	},
	// first returns the first n elements of a list, and the number of the others. The JSON form has
	// all elements.
	"first": func(n int, list any) any {
		all := reflect.ValueOf(list)
		return all.Slice(0, min(n, all.Len())).Interface()
	},
	"beyond": func(n int, list any) int { return max(reflect.ValueOf(list).Len()-n, 0) },
	"parts":  Memory.parts, "letters": Memory.letters, "verdict": Memory.verdict, "layout": layout,
	"layers": (*Schedule).byLayer,
	"waits":  func(l Line) float64 { return l.Interconnect + l.Network },
	"times":  func(l Line) []LayerTime { return timesByKind(l.CoreTime) }, "moves": collectivesOf,
	"sides": AnnotationSuggestion.sides, "several": (*Report).severalDTypes, "dtypes": (*Report).dtypesOf,
	"valuesAtPeak": (*Schedule).valuesAtPeak, "peakOperation": (*Schedule).peakOperation,
	"groupTensors": (*Report).groupTensors, "sumLines": (*Report).sumLines,
	"summary": (*AnnotationSuggestions).summary, "subject": AnnotationSuggestion.subject, "predicted": predictionParts,
	"uncertain": uncertainConstants,
}

var text = template.Must(template.New("text").Funcs(functions).Parse(textForm))

// WriteText writes the report as text in about 80 columns. Control characters in names, which could
// move a terminal's cursor, are replaced by U+FFFD.
func (r *Report) WriteText(w io.Writer) error {
	var b strings.Builder
	columns := tabwriter.NewWriter(&b, 0, 4, 2, ' ', 0)
	if err := text.Execute(columns, r); err != nil {
		return &errkind.Fault{Op: "report: write the text", Err: err}
	}
	// A strings.Builder returns no error.
	_ = columns.Flush()
	_, err := io.WriteString(w, strings.Map(func(r rune) rune {
		if unicode.IsControl(r) && r != '\n' {
			return unicode.ReplacementChar
		}
		return r
	}, b.String()))
	return err
}

// String formats the target as "v5e:2x4 (8 x TPU v5 lite, hosts: 1)".
func (t Target) String() string {
	text := t.Name
	if t.Devices > 0 {
		text += fmt.Sprintf(" (%d x %s", t.Devices, t.Kind)
		if t.Hosts > 0 {
			text += fmt.Sprintf(", hosts: %d", t.Hosts)
		}
		text += ")"
	}
	return text
}

const barWidth = 50

func (m Memory) letters() string {
	bar := ""
	for _, part := range m.parts() {
		if part.Bytes > 0 {
			n := int(float64(barWidth) * float64(part.Bytes) / float64(m.Limit))
			bar += strings.Repeat(part.Letter, min(n, barWidth-min(len(bar), barWidth)))
		}
	}
	return bar + strings.Repeat(".", barWidth-len(bar))
}

func (m Memory) verdict() string {
	switch {
	case m.Limit == 0:
		return fmt.Sprintf("%s: the memory of a core is not known", m.Verdict)
	case m.Needs == 0:
		return fmt.Sprintf("%s: more than the %s of a core", m.Verdict, units.Bytes(m.Limit))
	}
	return fmt.Sprintf("%s: %s, %s of the memory of a core", m.Verdict, units.Bytes(m.Needs), memoryPercent(m))
}

func memoryPercent(m Memory) string {
	if share := 100 * float64(m.Needs) / float64(m.Limit); share >= 0.1 {
		return fmt.Sprintf("%.1f%%", share)
	}
	return "less than 0.1%"
}

type memoryPart struct {
	Name   string
	Letter string
	Bytes  int64
	Class  string
}

// parts returns the parts of the memory bar. Outputs that share the memory of arguments are counted
// only once.
func (m Memory) parts() []memoryPart {
	if m.Refused {
		return []memoryPart{{"arguments", "a", m.Arguments, "arguments"}}
	}
	return []memoryPart{
		{"arguments", "a", m.Arguments, "arguments"},
		{"outputs", "o", m.Outputs - m.Aliased, "outputs"},
		{"aliased", "", m.Aliased, "aliased"},
		{"temporaries", "t", m.Temporaries, "temporaries"},
		{"code", "c", m.Code, "code"},
	}
}

// overReplicas matches a split over the replica axis, also in the braces of earlier report formats.
var overReplicas = regexp.MustCompile(`\breplica\b`)

func layout(t memory.Tensor) string {
	text := t.Annotation
	if text == "none" {
		text = "unsharded"
	}
	if t.PerReplica {
		return text + ", per replica"
	}
	if t.ReplicaShard != nil {
		if text == "unsharded" {
			text = ""
		} else {
			text += ", "
		}
		return text + fmt.Sprintf("dimension %d over %d replicas", t.ReplicaShard.Dim, t.ReplicaShard.Replicas)
	}
	if overReplicas.MatchString(text) {
		return text // each replica has a shard
	}
	return text + ", mirrored"
}

// severalDTypes reports whether any collective has a dtype other than float32. The table then has a
// column for the dtypes.
func (r *Report) severalDTypes() bool {
	return slices.ContainsFunc(r.CollectiveDTypes, func(d CollectiveDType) bool { return d.DType != "f32" })
}

func (r *Report) dtypesOf(c Collective) string {
	var parts []string
	for _, d := range r.CollectiveDTypes {
		if d.Kind == c.Kind && d.Axis == c.Axis && d.GroupSize == c.GroupSize {
			parts = append(parts, d.DType+" "+units.Bytes(d.Bytes))
		}
	}
	return strings.Join(parts, ", ")
}

func percentText(x float64) string { return fmt.Sprintf("%.2f%%", 100*x) }

type timePart struct {
	Name    string
	Seconds float64
	Note    string
}

func predictionParts(p *cost.Prediction) []timePart {
	parts := []timePart{{"products", p.Products, ""}, {"memory", p.Memory, ""}}
	if p.Closed > 0 {
		parts[0].Note = fmt.Sprintf(", of which %s without the compiler's cycles", units.Seconds(p.Closed))
	}
	for _, x := range []struct {
		name string
		cost.Overlap
	}{{"waits for collectives", p.Interconnect}, {"waits for other slices", p.Network}} {
		note := ""
		if x.Hidden > 0 {
			note = fmt.Sprintf(", and %s hidden by other operations", units.Seconds(x.Hidden))
		}
		if x.Overlap != (cost.Overlap{}) {
			parts = append(parts, timePart{x.name, x.Exposed, note})
		}
	}
	return parts
}

// uncertainConstants returns the constants of a prediction that are fitted or assumed, instead of
// published or taken from the compiler.
func uncertainConstants(p *cost.Prediction) []cost.Constant {
	return slices.DeleteFunc(slices.Clone(p.Constants), func(c cost.Constant) bool {
		return c.Basis != "fitted" &&
			c.Basis != "assumed"
	})
}
