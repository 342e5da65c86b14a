package curve

import (
	"sync"

	"golang.org/x/image/font"
	"golang.org/x/image/font/gofont/gobold"
	"golang.org/x/image/font/gofont/goregular"
	"golang.org/x/image/font/opentype"
	"golang.org/x/image/math/fixed"
)

// The fonts of PNG pictures, by whose widths all pictures are laid out. They have Latin, Greek and
// Cyrillic letters.
var fonts = sync.OnceValue(func() [2]*opentype.Font {
	regular, err := opentype.Parse(goregular.TTF)
	if err != nil {
		panic(err) // the package's own bytes
	}
	bold, err := opentype.Parse(gobold.TTF)
	if err != nil {
		panic(err)
	}
	return [2]*opentype.Font{regular, bold}
})

// face returns a font of a size in pixels. One goroutine uses it at a time.
func face(size float64, bold bool) font.Face {
	f := fonts()[0]
	if bold {
		f = fonts()[1]
	}
	face, err := opentype.NewFace(f, &opentype.FaceOptions{Size: size, DPI: 72, Hinting: font.HintingNone})
	if err != nil {
		panic(err) // NewFace of a valid font has no errors
	}
	return face
}

// measure returns the width of a text in pixels.
func measure(text string, size float64, bold bool) float64 {
	f := face(size, bold)
	defer f.Close()
	return unfixed(font.MeasureString(f, text))
}

func unfixed(v fixed.Int26_6) float64 { return float64(v) / 64 }

// fit cuts a text that is wider than there is room for.
func fit(text string, size float64, bold bool, room float64) string {
	if measure(text, size, bold) <= room {
		return text
	}
	f := face(size, bold)
	defer f.Close()
	w := unfixed(font.MeasureString(f, "…"))
	for i, r := range text {
		advance, _ := f.GlyphAdvance(r)
		if w += unfixed(advance); w > room {
			return text[:i] + "…"
		}
	}
	return text
}
