// Package curve draws learning curves: values over the steps of one or several runs, as a
// self-contained page.
//
// A [Plot] is plain data. [Plot.Save] writes it to a file atomically:
//
//	f, err := os.Open("run.csv") // of a run of package fit
//	series, err := curve.ReadCSV(f)
//	plot, err := curve.Learning("a small GPT", series, "loss", "held/loss", "learning_rate")
//	err = plot.Save("curve.html")
//
// [Page] writes several plots to one page. uPlot draws them in the browser. The page contains uPlot
// and the values, and loads nothing from the network. The reader can zoom, hide lines and runs,
// select logarithmic axes, and show measured or smoothed values. A table contains the first, last,
// lowest and highest measured value of each line. The page follows the browser's light or dark theme
// and fits a narrow window. The same plots are written as the same bytes on every platform.
//
// A series may have any number of points in any order. If there are very many, the page contains the
// points that are distinguishable in a window, and no peak is lost. A value that is not finite is a
// gap in its line, and a mark on the axis shows its step. The error of a plot that cannot be drawn
// matches [ErrPlot].
package curve
