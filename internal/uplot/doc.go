// Package uplot carries uPlot, the charting library of the pages, as it was published. fetch.sh says
// where it is from, and a test holds it to its hashes.
package uplot
