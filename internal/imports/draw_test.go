package imports

import (
	"fmt"
	"slices"
	"strings"
)

// width is the widest line of the picture.
const width = 96

// Draw returns the law as a picture, with the top layer first. Packages for tests and packages in
// development are omitted. An arrow is omitted if other arrows lead to the same package. The lowest
// layer is a list, because its packages have no arrows in the picture.
func (l Law) Draw() string {
	var b strings.Builder
	arrows := map[string][]string{}
	ground, column, margin := map[string]bool{}, 0, 0
	for i, layer := range l.Layers {
		margin = max(margin, len(layer.Name))
		for _, r := range layer.Rooms {
			if r.ForTests {
				continue
			}
			arrows[r.Path] = r.May
			if ground[r.Path] = i == 0; !ground[r.Path] {
				column = max(column, len(r.Path))
			}
		}
	}
	rule := strings.Repeat("-", margin+2) + "+" + strings.Repeat("-", width-margin-3) + "\n"
	drawn := 0
	for i, layer := range slices.Backward(l.Layers) {
		name := layer.Name
		line := func(text string) {
			if name != "" && drawn > 0 {
				b.WriteString(rule)
			}
			drawn++
			b.WriteString(strings.TrimRight(fmt.Sprintf(" %-*s | %s", margin, name, text), " ") + "\n")
			name = ""
		}
		if i == 0 {
			var list []string
			for _, r := range layer.Rooms {
				list = append(list, r.Path)
			}
			for _, text := range wrap(list, width-margin-5) {
				line(text)
			}
			continue
		}
		for _, r := range slices.Backward(layer.Rooms) {
			if r.ForTests {
				continue
			}
			text := fmt.Sprintf("%-*s", column, r.Path)
			indent := margin + column + 9
			for j, targets := range wrap(direct(r.Path, arrows, ground), width-indent) {
				if j > 0 {
					line(text)
					text = strings.Repeat(" ", column)
				}
				text += map[bool]string{true: " -> ", false: "    "}[j == 0] + targets
			}
			line(text)
		}
	}
	return b.String()
}

// direct returns the arrows of a package that are not implied by its other arrows.
func direct(from string, arrows map[string][]string, ground map[string]bool) (list []string) {
	for _, to := range slices.Backward(arrows[from]) {
		if _, drawn := arrows[to]; !drawn && to != C || ground[to] {
			continue
		}
		if !slices.ContainsFunc(arrows[from],
			func(other string) bool { return other != to && reaches(other, to, arrows) }) {
			list = append(list, to)
		}
	}
	return list
}

// reaches reports whether arrows lead from one package to another. The law has no cycles.
func reaches(from, to string, arrows map[string][]string) bool {
	return slices.ContainsFunc(arrows[from], func(next string) bool { return next == to || reaches(next, to, arrows) })
}

// wrap joins words by two spaces to lines of at most limit bytes.
func wrap(words []string, limit int) (lines []string) {
	for _, w := range words {
		if n := len(lines); n > 0 && len(lines[n-1])+2+len(w) <= limit {
			lines[n-1] += "  " + w
		} else {
			lines = append(lines, w)
		}
	}
	return lines
}
