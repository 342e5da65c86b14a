package diff

import (
	"cmp"
	"fmt"
	"io"
	"strings"

	"github.com/tpustrategy/tpustrategy/internal/plain"
)

// Result contains the differences between reports for each slice, and the figures that exceed a
// budget. Both lists may be empty.
type Result struct {
	Slices []*Diff  `json:"slices"`
	Over   []Change `json:"over_budget"`
}

// Worse summarizes the figures that became worse and the exceeded limits in one line. It returns an
// empty string if there are none.
func (r *Result) Worse() string {
	n := 0
	for _, d := range r.Slices {
		for _, c := range d.Changes {
			if c.Verdict == Worse {
				n++
			}
		}
	}
	var text []string
	if n > 0 {
		text = append(text, fmt.Sprintf("%d worse", n))
	}
	if len(r.Over) > 0 {
		text = append(text, fmt.Sprintf("%d over the budget", len(r.Over)))
	}
	return strings.Join(text, ", ")
}

// shown is the maximum number of changes per verdict in texts. The JSON format contains all.
const shown = 20

// WriteText writes the result as text. Control characters in names are escaped.
func (r *Result) WriteText(w io.Writer) error {
	var b strings.Builder
	r.write(&b, plain.EscapeLine, "%s\n", "  %-6s  %s\n", "  note    %s\n")
	_, err := io.WriteString(w, b.String())
	return err
}

// WriteMarkdown writes the result as Markdown for a pull request.
func (r *Result) WriteMarkdown(w io.Writer) error {
	var b strings.Builder
	r.write(&b, markdown, "\n**%s**\n\n", "- **%s**: %s\n", "- note: %s\n")
	_, err := io.WriteString(w, strings.TrimPrefix(b.String(), "\n"))
	return err
}

func markdown(text string) string {
	return strings.NewReplacer(`\`, `\\`, "`", "\\`", "*", `\*`, "_", `\_`, "<", "&lt;", "[", `\[`, "|", `\|`, "@",
		"&#64;", "#", `\#`).Replace(plain.EscapeLine(text))
}

// write writes the result. title, change and note are the format strings of the three kinds of
// lines, and safe escapes text.
func (r *Result) write(b *strings.Builder, safe func(string) string, title, change, note string) {
	for _, d := range r.Slices {
		heading := d.After
		if d.Before != d.After {
			heading += ", was " + d.Before
		}
		fmt.Fprintf(b, title, safe(heading))
		list(b, d.Changes, safe, change, note)
		for _, text := range d.Notes {
			fmt.Fprintf(b, note, safe(text))
		}
		if len(d.Changes) == 0 {
			fmt.Fprintf(b, note, "nothing has changed")
		}
	}
	if len(r.Over) > 0 {
		fmt.Fprintf(b, title, "over the budget")
		list(b, r.Over, safe, change, note)
	}
}

// list writes the figures that became worse or better, and a line with the names of all other
// changes.
func list(b *strings.Builder, changes []Change, safe func(string) string, change, note string) {
	of := map[Verdict]int{}
	var same []string
	for _, c := range changes {
		if c.Verdict == Same {
			same = append(same, cmp.Or(c.Subject, c.What))
		} else if of[c.Verdict]++; of[c.Verdict] <= shown {
			fmt.Fprintf(b, change, string(c.Verdict), safe(c.Text))
		}
	}
	for _, v := range []Verdict{Worse, Better} {
		if n := of[v] - shown; n > 0 {
			fmt.Fprintf(b, note, fmt.Sprintf("%d more are %s; --json has all", n, v))
		}
	}
	if n := len(same); n > 0 {
		if n > 3 {
			same = append(same[:3], fmt.Sprintf("%d more", n-3))
		}
		fmt.Fprintf(b, note, safe("no significant differences: "+strings.Join(same, ", ")))
	}
}
