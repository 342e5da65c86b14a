package report

import (
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"strings"
	"text/tabwriter"
	"unicode"
)

// WriteText writes the report as text for people, in about 80 columns. It writes U+FFFD for a
// control character in a name, which could move a terminal's cursor.
func (r *Report) WriteText(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%s on %s: %d replicas of %d logical devices\n", r.Step, r.Target, r.Replicas, r.LogicalDevices)
	for i, name := range slices.Sorted(maps.Keys(r.Options)) {
		fmt.Fprintf(&b, "%s%s %s", map[bool]string{true: "with ", false: ", "}[i == 0], name, r.Options[name])
	}
	if len(r.Options) > 0 {
		b.WriteString("\n")
	}
	r.memoryText(&b)
	r.Schedule.text(&b)
	r.linesText(&b)
	r.Mends.text(&b)
	r.tensorsText(&b)
	r.collectivesText(&b)
	r.costText(&b)
	r.Predicted.text(&b)
	for _, note := range r.Notes {
		fmt.Fprintf(&b, "\nnote: %s\n", note)
	}
	_, err := io.WriteString(w, strings.Map(printable, b.String()))
	return err
}

func printable(r rune) rune {
	if unicode.IsControl(r) && r != '\n' {
		return unicode.ReplacementChar
	}
	return r
}

// String prints the target as "v5e:2x4 (8 x TPU v5 lite, hosts: 1)".
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

// barWidth is the memory bar's, in characters.
const barWidth = 50

func (r *Report) memoryText(b *strings.Builder) {
	m := r.Memory
	b.WriteString("\nmemory of one core\n")
	for _, part := range m.parts() {
		fmt.Fprintf(b, "  %-12s %12s\n", part.Name, Bytes(part.Bytes))
	}
	if !m.Refused {
		fmt.Fprintf(b, "  %-12s %12s\n", "total", Bytes(m.Total))
	}
	if m.Peak > 0 {
		fmt.Fprintf(b, "  %-12s %12s  (the compiler's figure, without the code)\n", "peak", Bytes(m.Peak))
	}
	if m.Limit == 0 {
		fmt.Fprintf(b, "  verdict: %s\n", m.verdict())
		return
	}
	bar := ""
	for _, part := range m.parts() {
		if part.Bytes > 0 && part.Name != "aliased" {
			n := int(float64(barWidth) * float64(part.Bytes) / float64(m.Limit))
			bar += strings.Repeat(part.Letter, min(n, barWidth-min(len(bar), barWidth)))
		}
	}
	fmt.Fprintf(b, "  [%s%s] of %s\n", bar, strings.Repeat(".", barWidth-len(bar)), Bytes(m.Limit))
	fmt.Fprintf(b, "  verdict: %s\n", m.verdict())
	for i, advice := range r.Advice {
		fmt.Fprintf(b, "  %-12s %s\n", map[bool]string{true: "to fit, try"}[i == 0], advice)
	}
}

// verdict says whether the program fits, and by how much.
func (m Memory) verdict() string {
	switch {
	case m.Limit == 0:
		return fmt.Sprintf("%s: the memory of a core is not known", m.Verdict)
	case m.Needs == 0:
		return fmt.Sprintf("%s: more than the %s of a core", m.Verdict, Bytes(m.Limit))
	}
	return fmt.Sprintf("%s: %s, %.1f%% of the memory of a core", m.Verdict, Bytes(m.Needs), 100*float64(m.Needs)/float64(m.Limit))
}

// memoryPart is a part of a program's memory.
type memoryPart struct {
	Name   string
	Letter string
	Bytes  int64
	Class  string
}

// parts are those of the bar: outputs that take over arguments count once.
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

// What bounds the tensors of the text form; JSON has them all.
const textTensors = 20

func (r *Report) tensorsText(b *strings.Builder) {
	largest := r.Grouped()
	if len(largest) == 0 {
		return
	}
	b.WriteString("\ntensors at the step's border, those that are alike together, largest first\n")
	t := tabwriter.NewWriter(b, 0, 4, 2, ' ', 0)
	fmt.Fprintln(t, "  role\tname\tcount\tshape\ton one core\tbytes\tcopies\tlayout")
	for _, x := range largest[:min(len(largest), textTensors)] {
		fmt.Fprintf(t, "  %s\t%s\t%d\t%s%v\t%v\t%s\t%d\t%s\n", x.Role, x.Name, x.Count, x.DType, x.Shape, x.Shard, Bytes(x.BytesPerCore), x.Copies, x.layout())
	}
	// A strings.Builder takes everything.
	_ = t.Flush()
	if n := len(largest) - textTensors; n > 0 {
		fmt.Fprintf(b, "  and %d more\n", n)
	}
}

// overReplicas matches a split that names the axis of the replicas, also as reports had it before, in
// braces.
var overReplicas = regexp.MustCompile(`\breplica\b`)

// layout says in words where a tensor is.
func (t Tensor) layout() string {
	text := t.Annotation
	if text == "none" {
		text = "whole"
	}
	if t.PerReplica {
		return text + ", per replica"
	}
	if t.Cut != nil {
		if text == "whole" {
			text = ""
		} else {
			text += ", "
		}
		return text + fmt.Sprintf("dimension %d over %d replicas", t.Cut.Dim, t.Cut.Replicas)
	}
	if overReplicas.MatchString(text) {
		return text // each replica holds a part
	}
	return text + ", mirrored"
}

func (r *Report) collectivesText(b *strings.Builder) {
	if r.Memory.Refused {
		return
	}
	b.WriteString("\ncollectives of one core in one step\n")
	if len(r.Collectives) == 0 {
		b.WriteString("  none\n")
		return
	}
	t := tabwriter.NewWriter(b, 0, 4, 2, ' ', 0)
	dtypes := r.severalDTypes()
	heading := ""
	if dtypes {
		heading = "\tdtypes"
	}
	fmt.Fprintln(t, "  kind\taxis\tcores\tcount\toperands\tsent, at least"+heading)
	for _, c := range r.Collectives {
		of := ""
		if dtypes {
			of = "\t" + r.dtypesOf(c)
		}
		fmt.Fprintf(t, "  %s\t%s\t%d\t%d\t%s\t%s%s\n", c.Kind, c.Axis, c.GroupSize, c.Count, Bytes(c.Bytes), Bytes(c.Moved), of)
	}
	// A strings.Builder takes everything.
	_ = t.Flush()
}

// severalDTypes says that the collectives carry more than float32, so that their dtypes are worth a
// column.
func (r *Report) severalDTypes() bool {
	return slices.ContainsFunc(r.CollectiveDTypes, func(d CollectiveDType) bool { return d.DType != "f32" })
}

// dtypesOf says of which dtypes the operands of c are, most bytes first.
func (r *Report) dtypesOf(c Collective) string {
	var parts []string
	for _, d := range r.CollectiveDTypes {
		if d.Kind == c.Kind && d.Axis == c.Axis && d.GroupSize == c.GroupSize {
			parts = append(parts, d.DType+" "+Bytes(d.Bytes))
		}
	}
	return strings.Join(parts, ", ")
}

func (r *Report) costText(b *strings.Builder) {
	c := r.Cost
	b.WriteString("\ncost, estimated\n")
	if c.FLOPs >= 0 {
		fmt.Fprintf(b, "  operations of one core  %s\n", SI(c.FLOPs, "FLOP"))
	}
	if c.BytesAccessed >= 0 {
		fmt.Fprintf(b, "  bytes accessed          %s\n", Bytes(int64(c.BytesAccessed)))
	}
	if c.ModelFLOPs > 0 {
		fmt.Fprintf(b, "  the model asks for      %s on all cores\n", SI(c.ModelFLOPs, "FLOP"))
	}
	if c.RooflineSeconds > 0 {
		fmt.Fprintf(b, "  roofline                %s, operation after operation at the published peak and rate of memory\n", Seconds(c.RooflineSeconds))
		if c.Untimed > 0 {
			fmt.Fprintf(b, "                          without %d operations whose time is not known\n", c.Untimed)
		}
	}
	if c.FloorSeconds > 0 {
		fmt.Fprintf(b, "  at least                %s, all at once\n", Seconds(c.FloorSeconds))
	}
	if c.Utilization > 0 {
		of := "roofline"
		if c.RooflineSeconds == 0 {
			of = "least time"
		}
		fmt.Fprintf(b, "  utilization             at most %.2f%% of the published peak, %s a core, by that %s\n", 100*c.Utilization, SI(r.Target.PeakFLOPS, "FLOP/s"), of)
	}
	if r.CompilingSeconds > 0 {
		fmt.Fprintf(b, "  to make                 %s to lower, %s to compile\n", Seconds(r.LoweringSeconds), Seconds(r.CompilingSeconds))
	}
}

// Bytes returns a number of bytes as text, such as "1.50 MiB".
func Bytes(n int64) string {
	for _, unit := range []struct {
		size int64
		name string
	}{{1 << 40, "TiB"}, {1 << 30, "GiB"}, {1 << 20, "MiB"}, {1 << 10, "KiB"}} {
		if n >= unit.size {
			return fmt.Sprintf("%.2f %s", float64(n)/float64(unit.size), unit.name)
		}
	}
	return fmt.Sprintf("%d B", n)
}

// SI returns a number with a decimal prefix and its unit as text, such as "197.00 TFLOP/s".
func SI(x float64, unit string) string {
	for _, prefix := range []struct {
		size float64
		name string
	}{{1e18, "E"}, {1e15, "P"}, {1e12, "T"}, {1e9, "G"}, {1e6, "M"}, {1e3, "k"}} {
		if x >= prefix.size {
			return fmt.Sprintf("%.2f %s%s", x/prefix.size, prefix.name, unit)
		}
	}
	return fmt.Sprintf("%.0f %s", x, unit)
}

// Seconds returns a time in seconds as text, such as "1.25 ms".
func Seconds(s float64) string {
	switch {
	case s >= 1:
		return fmt.Sprintf("%.2f s", s)
	case s >= 1e-3:
		return fmt.Sprintf("%.2f ms", s*1e3)
	}
	return fmt.Sprintf("%.1f us", s*1e6)
}
