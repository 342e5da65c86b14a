package module

import (
	"fmt"
	"regexp"
	"strconv"

	"github.com/gomlx/go-xla/stablehlo"
	"github.com/gomlx/go-xla/types/shapes"
)

// StableHLO's builder has no Shardy ops, and some ops of ours need to know the
// whole step before they can be written. Such an op is traced as a marker: a
// custom_call with one attribute, the number of its emitter. When the module is
// written, the emitter's text takes the place of the marker's line, wherever it
// stands, loop bodies included.

const markerAttribute = "tpustrategy.marker"

// mark is a marker's line, taken apart.
type mark struct {
	indent, out, in, inType, outType string
}

// emitter writes the op that a marker stands for, without the first line's
// indentation and the last line's end.
type emitter func(w *writer, m mark) string

// mark adds a marker of one operand and one result to f.
func (t *Trace) mark(f *stablehlo.Function, x *stablehlo.Value, result shapes.Shape, emit emitter) (*stablehlo.Value, error) {
	out, err := stablehlo.CustomCallV2(markerAttribute, "", []*stablehlo.Value{x}, nil, []shapes.Shape{result.Clone()}, nil)
	if err != nil {
		return nil, fmt.Errorf("module: %w", err)
	}
	last := f.Statements[len(f.Statements)-1]
	last.Attributes = map[string]any{markerAttribute: strconv.Itoa(len(t.markers))}
	t.markers = append(t.markers, emit)
	return out[0], nil
}

var markerLine = regexp.MustCompile(
	`(?m)^( *)(%\w+) = "stablehlo\.custom_call"\((%\w+)\) \{ ` + regexp.QuoteMeta(markerAttribute) + ` = "(\d+)" \} : \((.*)\) -> (.*)$`)

// expand replaces the markers of a text by their ops.
func (w *writer) expand(text string) string {
	return markerLine.ReplaceAllStringFunc(text, func(line string) string {
		f := markerLine.FindStringSubmatch(line)
		number, _ := strconv.Atoi(f[4])
		return f[1] + w.trace.markers[number](w, mark{indent: f[1], out: f[2], in: f[3], inType: f[5], outType: f[6]})
	})
}
