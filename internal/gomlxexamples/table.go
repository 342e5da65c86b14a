package gomlxexamples

import (
	"fmt"
	"regexp"
	"strings"
	"time"
)

// row is what the runs of a program came to, a cell for each column.
type row struct {
	program
	from, to float64 // losses on one device
	cells    []cell
}

// cell is a program's runs on one kind of devices.
type cell struct {
	apart  float64 // from the first column
	rate   float64 // steps a second
	wall   time.Duration
	failed bool
}

// page is the text of docs/gomlx-examples.md.
func page(columns []devices, rows []row) string {
	var b strings.Builder
	b.WriteString(before)
	heads := []string{"program", "steps", "loss"}
	for _, c := range columns[1:] {
		heads = append(heads, c.name)
	}
	line(&b, append(heads, "bar", "plots", "restart")...)
	line(&b, strings.Split(strings.Repeat("---,", len(heads)+2)+"---", ",")...)
	trained, printed := 0, 0
	for _, r := range rows {
		out := []string{"`" + strings.ReplaceAll(r.main, "`", "") + "`" + strings.TrimPrefix(r.name, r.main)}
		if r.steps > 0 {
			trained++
			out = append(out, fmt.Sprint(r.steps), fmt.Sprintf("%.4g to %.4g", r.from, r.to))
		} else {
			printed++
			out = append(out, "", "")
		}
		for _, c := range r.cells[1:] {
			switch {
			case c.failed:
				out = append(out, "fails")
			case r.steps == 0:
				out = append(out, "same text")
			default:
				out = append(out, fmt.Sprintf("%.1e", c.apart))
			}
		}
		line(&b, append(out, yes(r.bar), yes(r.plots), yes(r.resumed != 0))...)
	}
	fmt.Fprintf(&b, "\n%d programs train, %d print.\n", trained, printed)
	for _, r := range rows {
		if r.why != "" {
			fmt.Fprintf(&b, "\n- %s: within %.0e: %s\n", r.name, r.tolerance, r.why)
		}
	}
	return b.String()
}

func line(b *strings.Builder, cells ...string) {
	b.WriteString("| " + strings.Join(cells, " | ") + " |\n")
}

func yes(ok bool) string {
	if ok {
		return "yes"
	}
	return ""
}

var notName = regexp.MustCompile(`[^a-z0-9]+`)

// folder is a name for the folder of the program's runs.
func (p program) folder() string { return notName.ReplaceAllString(strings.ToLower(p.name), "_") }

func (d devices) folder() string { return notName.ReplaceAllString(strings.ToLower(d.name), "_") }

const before = `# GoMLX's examples on several devices
`
