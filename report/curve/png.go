package curve

import (
	"bytes"
	"image"
	"image/color"
	"image/draw"
	"image/png"
	"math"

	"golang.org/x/image/font"
	"golang.org/x/image/math/fixed"
	"golang.org/x/image/vector"
)

// density is the number of pixels of a PNG for each pixel of the page.
const density = 2

// PNG returns the plot as a PNG picture on white. The same plot gives the same bytes.
func (p Plot) PNG() ([]byte, error) {
	s, err := p.layout()
	if err != nil {
		return nil, err
	}
	c := canvas{image.NewRGBA(image.Rect(0, 0, int(s.width)*density, int(s.height)*density))}
	draw.Draw(c.to, c.to.Bounds(), image.NewUniform(light.of(back)), image.Point{}, draw.Src)
	for _, k := range s.strokes {
		c.stroke(k)
	}
	for _, d := range s.dots {
		c.dot(d)
	}
	for _, l := range s.labels {
		c.label(l)
	}
	var out bytes.Buffer
	if err := png.Encode(&out, c.to); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

// canvas is what a scene is painted on.
type canvas struct{ to *image.RGBA }

// stroke paints lines as the union of their segments, each with round ends, so that what crosses
// itself is as faint as the rest.
func (c canvas) stroke(k stroke) {
	r := k.width / 2 * density
	low, high := xy{math.Inf(1), math.Inf(1)}, xy{math.Inf(-1), math.Inf(-1)}
	for _, part := range k.parts {
		for _, at := range part {
			low = xy{min(low.x, at.x), min(low.y, at.y)}
			high = xy{max(high.x, at.x), max(high.y, at.y)}
		}
	}
	area := image.Rect(int(low.x*density-r)-2, int(low.y*density-r)-2, int(high.x*density+r)+3, int(high.y*density+r)+3).Intersect(c.to.Bounds())
	if area.Empty() {
		return
	}
	ras := vector.NewRasterizer(area.Dx(), area.Dy())
	ras.DrawOp = draw.Over
	origin := xy{float64(area.Min.X), float64(area.Min.Y)}
	place := func(at xy) xy { return xy{at.x*density - origin.x, at.y*density - origin.y} }
	for _, part := range k.parts {
		for i := 1; i < len(part); i++ {
			segment(ras, place(part[i-1]), place(part[i]), r)
		}
		if k.width > 1 {
			for _, at := range part {
				disc(ras, place(at), r)
			}
		}
	}
	ink := light.of(k.ink)
	ink.A = uint8(math.Round(255 * k.alpha))
	ras.Draw(c.to, area, image.NewUniform(ink), image.Point{})
}

// segment adds a straight line to a path. All paths turn the same way, so that none takes another
// away.
func segment(ras *vector.Rasterizer, a, b xy, r float64) {
	dx, dy := b.x-a.x, b.y-a.y
	length := math.Hypot(dx, dy)
	if length == 0 {
		return
	}
	nx, ny := -dy/length*r, dx/length*r
	ras.MoveTo(float32(a.x+nx), float32(a.y+ny))
	ras.LineTo(float32(a.x-nx), float32(a.y-ny))
	ras.LineTo(float32(b.x-nx), float32(b.y-ny))
	ras.LineTo(float32(b.x+nx), float32(b.y+ny))
	ras.ClosePath()
}

// disc adds a circle to a path.
func disc(ras *vector.Rasterizer, at xy, r float64) {
	const corners = 12
	for i := range corners {
		sin, cos := math.Sincos(2 * math.Pi * float64(i) / corners)
		x, y := float32(at.x+r*cos), float32(at.y+r*sin)
		if i == 0 {
			ras.MoveTo(x, y)
		} else {
			ras.LineTo(x, y)
		}
	}
	ras.ClosePath()
}

func (c canvas) dot(d dot) {
	r := d.radius * density
	area := image.Rect(int(d.at.x*density-r)-1, int(d.at.y*density-r)-1, int(d.at.x*density+r)+2, int(d.at.y*density+r)+2).Intersect(c.to.Bounds())
	if area.Empty() {
		return
	}
	ras := vector.NewRasterizer(area.Dx(), area.Dy())
	ras.DrawOp = draw.Over
	disc(ras, xy{d.at.x*density - float64(area.Min.X), d.at.y*density - float64(area.Min.Y)}, r)
	ras.Draw(c.to, area, image.NewUniform(light.of(d.ink)), image.Point{})
}

func (c canvas) label(l label) {
	f := face(l.size*density, l.bold)
	defer f.Close()
	x := l.at.x * density
	switch w := unfixed(font.MeasureString(f, l.text)); l.anchor {
	case middle:
		x -= w / 2
	case end:
		x -= w
	}
	d := font.Drawer{Dst: c.to, Src: image.NewUniform(light.of(l.ink)), Face: f,
		Dot: fixed.Point26_6{X: fixed.Int26_6(math.Round(x * 64)), Y: fixed.Int26_6(math.Round(l.at.y * density * 64))}}
	d.DrawString(l.text)
}

// theme is the colors of a page.
type theme struct {
	strong, weak, faint, back color.NRGBA
	series                    []color.NRGBA
}

func (t theme) of(i ink) color.NRGBA {
	switch i {
	case strong:
		return t.strong
	case weak:
		return t.weak
	case faint:
		return t.faint
	case back:
		return t.back
	}
	return t.series[int(i)%len(t.series)]
}

func rgb(v uint32) color.NRGBA {
	return color.NRGBA{R: uint8(v >> 16), G: uint8(v >> 8), B: uint8(v), A: 255}
}

func colors(of ...uint32) (out []color.NRGBA) {
	for _, v := range of {
		out = append(out, rgb(v))
	}
	return out
}

// The two themes. Their colors can be told apart by those who do not see all of them.
var (
	light = theme{strong: rgb(0x222222), weak: rgb(0x666666), faint: rgb(0xe6e6e6), back: rgb(0xffffff),
		series: colors(0x4477aa, 0xee6677, 0x228833, 0xaa3377, 0xb8860b, 0x3aa8c8, 0x777777, 0x994f00)}
	dark = theme{strong: rgb(0xeeeeee), weak: rgb(0xaaaaaa), faint: rgb(0x333338), back: rgb(0x17181c),
		series: colors(0x77aadd, 0xff8899, 0x66bb77, 0xdd77bb, 0xddbb55, 0x66ccee, 0xbbbbbb, 0xcc9966)}
)
