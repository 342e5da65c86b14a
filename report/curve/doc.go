// Package curve draws learning curves: values over the steps of one run or of several, as a page that
// stands alone.
//
// A [Plot] is plain data. [Plot.Save] writes it to a file, whole or not at all:
//
//	f, err := os.Open("run.csv") // of a run of package fit
//	series, err := curve.ReadCSV(f)
//	plot, err := curve.Learning("a small GPT", series, "loss", "held/loss", "learning_rate")
//	err = plot.Save("curve.html")
//
// [Page] puts several plots on one page. uPlot draws them in the browser: the page carries it and the
// values, and loads nothing from elsewhere. Its reader zooms in, hides lines and runs, makes axes
// logarithmic, and sees the values as they are or smoothed. A table has each line's first, last,
// lowest and highest value as they were measured. The page follows the theme of the browser, light or
// dark, and fits a narrow window. The same plots give the same bytes everywhere.
//
// The points may be in any order, any number of them: of very many, those are on the page that a
// window can show, and no peak is lost. A value that is not finite is a gap in its line, and a mark on
// the axis shows its step. The error of what cannot be drawn at all matches [ErrPlot].
package curve
