package gomlxexamples

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

// row contains the results of a program, with one cell per column.
type row struct {
	program
	From, To float64 // losses on one device
	Cells    []cell
}

// cell contains the results of a program on one kind of device.
type cell struct {
	Apart float64 // largest difference from the first column
	// Variables is the number of split variables in the training step.
	Variables int
	Rate      float64 // steps per second
	Wall      time.Duration
}

// keep writes the row of a program to a file.
func (b *built) keep(r row) error {
	if err := os.MkdirAll(filepath.Join(b.dir, "results"), 0o755); err != nil {
		return err
	}
	text, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(b.result(r.program), text, 0o644)
}

// kept returns the rows of the programs that have passed, in the order of the table.
func (b *built) kept(of []program) (rows []row, err error) {
	for _, p := range of {
		text, err := os.ReadFile(b.result(p))
		if os.IsNotExist(err) {
			continue
		}
		if err != nil {
			return nil, err
		}
		r := row{program: p}
		if err := json.Unmarshal(text, &r); err != nil {
			return nil, fmt.Errorf("%s: %w", b.result(p), err)
		}
		rows = append(rows, r)
	}
	return rows, nil
}

func (b *built) result(p program) string {
	return filepath.Join(b.dir, "results", p.folder()+".json")
}

// versions contains the versions of the modules.
type versions struct{ examples, gomlx string }

// text is the template of the page. Words in capitals are placeholders.
//
//go:embed page.txt
var text string

// page returns the text of docs/gomlx-examples.md.
func page(of versions, columns []devices, rows []row) string {
	var b strings.Builder
	heads := []string{"program", "steps", "loss"}
	for _, c := range columns[1:] {
		heads = append(heads, c.name)
	}
	line(&b, append(heads, "bar", "plots", "restart")...)
	line(&b, strings.Split(strings.Repeat("---,", len(heads)+2)+"---", ",")...)
	trained, printed := 0, 0
	for _, r := range rows {
		label := r.name + " (`" + r.main + "`)"
		if rest, same := strings.CutPrefix(r.name, r.main); same {
			label = "`" + r.main + "`" + rest
		}
		out := []string{label}
		if r.steps > 0 {
			trained++
			out = append(out, fmt.Sprint(r.steps), fmt.Sprintf("%.4g to %.4g", r.From, r.To))
		} else {
			printed++
			out = append(out, "", "")
		}
		for _, c := range r.Cells[1:] {
			switch {
			case r.steps == 0:
				out = append(out, "same text")
			case c.Variables > 0:
				out = append(out, fmt.Sprintf("%.1e, %d split", c.Apart, c.Variables))
			default:
				out = append(out, fmt.Sprintf("%.1e", c.Apart))
			}
		}
		line(&b, append(out, yes(r.bar), yes(r.plots), yes(r.resumed != 0))...)
	}
	fmt.Fprintf(&b, "\n%d rows are of programs that train; %d are of programs that only print, whose text is compared.\n",
		trained, printed)
	for _, r := range rows {
		if r.why != "" {
			b.WriteString("\n" + wrapped(fmt.Sprintf("The limit for `%s` is %.0e, because %s.", r.name, r.tolerance, r.why)))
		}
	}
	return strings.NewReplacer("EXAMPLES", of.examples, "VERSION", of.gomlx, "USUAL", fmt.Sprintf("%.0e", usual), "TABLE",
		b.String()).Replace(text)
}

func line(b *strings.Builder, cells ...string) {
	b.WriteString("| " + strings.Join(cells, " | ") + " |\n")
}

// wrapped wraps a paragraph at 100 columns.
func wrapped(text string) string {
	var b strings.Builder
	column := 0
	for _, word := range strings.Fields(text) {
		switch {
		case column > 0 && column+1+len(word) > 100:
			b.WriteByte('\n')
			column = 0
		case column > 0:
			b.WriteByte(' ')
			column++
		}
		b.WriteString(word)
		column += len(word)
	}
	return b.String() + "\n"
}

func yes(ok bool) string {
	if ok {
		return "yes"
	}
	return ""
}

var notName = regexp.MustCompile(`[^a-z0-9]+`)

// folder returns the folder name of the program's runs.
func (p program) folder() string { return notName.ReplaceAllString(strings.ToLower(p.name), "_") }

func (d devices) folder() string { return notName.ReplaceAllString(strings.ToLower(d.name), "_") }
