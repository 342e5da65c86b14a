// Package uplot contains uPlot, the charting library of the pages, in unmodified form. fetch.sh
// contains its source, and a test checks its hashes.
package uplot
