// Package curve draws learning curves: values over the steps of a run, as an SVG picture or as a page
// that stands alone.
//
// A [Plot] is plain data. [Plot.Save] writes it to a file, whole or not at all:
//
//	f, err := os.Open("run.csv") // of a run of package strategy/fit
//	series, err := curve.ReadCSV(f)
//	plot, err := curve.Learning("a small GPT", series, "loss", "held/loss", "learning_rate")
//	err = plot.Save("curve.html")
//
// The points may be in any order, any number of them: of those that fall on one column of pixels, the
// first, the lowest, the highest and the last are drawn, so that no peak is lost. A value that is not
// finite is a gap in its line, and a cross on the axis marks its step. The error of what cannot be
// drawn at all matches [ErrPlot].
//
// Both follow the theme of the browser, light or dark; pages show the values under the pointer and
// load nothing from elsewhere. The same plot gives the same bytes everywhere.
package curve
