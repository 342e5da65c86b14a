package curve_test

import (
	"fmt"
	"log"
	"os"
	"path/filepath"
	"strings"

	"github.com/tpustrategy/tpustrategy/report/curve"
)

// Show the table of a run as a page.
func Example() {
	table := "step,epoch,loss,held/loss\n1,0,5.5,\n2,0,4.1,4.2\n3,0,3.2,\n4,0,2.9,3.1\n"
	series, err := curve.ReadCSV(strings.NewReader(table))
	if err != nil {
		log.Fatal(err)
	}
	plot, err := curve.Learning("a run", series, "loss", "held/loss")
	if err != nil {
		log.Fatal(err)
	}
	dir, err := os.MkdirTemp("", "")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	if err := plot.Save(filepath.Join(dir, "curve.html")); err != nil {
		log.Fatal(err)
	}
	for _, s := range series {
		fmt.Println(s.Name, s.Points)
	}
	// Output:
	// loss [{1 5.5} {2 4.1} {3 3.2} {4 2.9}]
	// held/loss [{2 4.2} {4 3.1}]
}

// Plot your own values with two value axes.
func ExamplePlot() {
	plot := curve.Plot{Title: "throughput", Y: "tokens a second", Series: []curve.Series{
		{Name: "tokens", Points: []curve.Point{{Step: 1, Value: 900}, {Step: 2, Value: 1400}, {Step: 3, Value: 1420}}},
		{Name: "loss", Points: []curve.Point{{Step: 1, Value: 5.5}, {Step: 2, Value: 4.1}, {Step: 3, Value: 3.2}},
			Axis: "loss"},
	}}
	page, err := plot.HTML()
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(strings.Count(string(page), "<tr data-line="), "lines; last:", plot.Series[0].Figures().Last.Value)
	// Output:
	// 2 lines; last: 1420
}
