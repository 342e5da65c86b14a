package curve

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"image/color"
	"strconv"
	"strings"
	"unicode/utf8"
)

// SVG returns the plot as an SVG picture, which follows the theme of the browser that shows it. The
// same plot gives the same bytes.
func (p Plot) SVG() ([]byte, error) {
	s, err := p.layout()
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	fmt.Fprintf(&out, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" `, int(s.width), int(s.height))
	s.svg(&out, p.Title)
	return out.Bytes(), nil
}

// svg writes a picture, after the beginning of its first tag.
func (s *scene) svg(out *bytes.Buffer, title string) {
	fmt.Fprintf(out, `viewBox="0 0 %d %d" role="img" font-family="system-ui, 'Helvetica Neue', Arial, sans-serif">`+"\n", int(s.width), int(s.height))
	if title != "" {
		fmt.Fprintf(out, "<title>%s</title>\n", escape(title))
	}
	fmt.Fprintf(out, "<style>\n%s@media (prefers-color-scheme: dark) {\n%s}\n</style>\n", light.css(len(s.lines)), dark.css(len(s.lines)))
	fmt.Fprintf(out, `<rect width="%d" height="%d" class="b"/>`+"\n", int(s.width), int(s.height))
	for _, k := range s.strokes {
		var d strings.Builder
		for _, part := range k.parts {
			for i, at := range part {
				d.WriteByte("ML"[min(i, 1)])
				d.WriteString(coordinate(at.x) + " " + coordinate(at.y))
			}
		}
		if d.Len() == 0 {
			continue
		}
		fmt.Fprintf(out, `<path d="%s" class="%s" fill="none" stroke-width="%g" stroke-linejoin="round"`, d.String(), class(k.ink, true), k.width)
		if k.alpha < 1 {
			fmt.Fprintf(out, ` opacity="%g"`, k.alpha)
		}
		out.WriteString("/>\n")
	}
	for _, d := range s.dots {
		fmt.Fprintf(out, `<circle cx="%s" cy="%s" r="%g" class="%s"/>`+"\n", coordinate(d.at.x), coordinate(d.at.y), d.radius, class(d.ink, false))
	}
	for _, l := range s.labels {
		fmt.Fprintf(out, `<text x="%s" y="%s" font-size="%g" class="%s"`, coordinate(l.at.x), coordinate(l.at.y), l.size, class(l.ink, false))
		if l.anchor != start {
			fmt.Fprintf(out, ` text-anchor="%s"`, map[anchor]string{middle: "middle", end: "end"}[l.anchor])
		}
		if l.bold {
			out.WriteString(` font-weight="600"`)
		}
		fmt.Fprintf(out, ">%s</text>\n", escape(l.text))
	}
	out.WriteString("</svg>\n")
}

// class names the ink of a line or of what is filled.
func class(i ink, line bool) string {
	name := map[ink]string{strong: "t", weak: "w", faint: "g", back: "b"}[i]
	if i >= 0 {
		name = "c" + strconv.Itoa(int(i)%len(light.series))
	}
	if line {
		return name + "l"
	}
	return name
}

// css gives the classes their colors.
func (t theme) css(lines int) string {
	var out strings.Builder
	for _, i := range []ink{strong, weak, faint, back} {
		fmt.Fprintf(&out, ".%s{fill:%s}.%s{stroke:%[2]s}\n", class(i, false), hex(t.of(i)), class(i, true))
	}
	for i := range min(lines, len(t.series)) {
		fmt.Fprintf(&out, ".%s{fill:%s}.%s{stroke:%[2]s}\n", class(ink(i), false), hex(t.series[i]), class(ink(i), true))
	}
	return out.String()
}

func hex(c color.NRGBA) string { return fmt.Sprintf("#%02x%02x%02x", c.R, c.G, c.B) }

// coordinate writes a place to a hundredth of a pixel.
func coordinate(v float64) string {
	text := strconv.FormatFloat(v, 'f', 2, 64)
	text = strings.TrimRight(strings.TrimRight(text, "0"), ".")
	if text == "-0" || text == "" {
		return "0"
	}
	return text
}

// escape writes a text into XML; characters that XML cannot have become U+FFFD.
func escape(text string) string {
	if !utf8.ValidString(text) {
		text = strings.ToValidUTF8(text, "\ufffd")
	}
	var out bytes.Buffer
	_ = xml.EscapeText(&out, []byte(text)) // a Buffer takes all
	return out.String()
}
