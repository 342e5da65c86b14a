// Package uplot embeds the unmodified charting library uPlot for HTML pages. fetch.sh downloads the
// library, and a test verifies its hashes.
package uplot
