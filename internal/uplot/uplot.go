package uplot

import (
	_ "embed"
	"html/template"
)

var (
	//go:embed uPlot.iife.min.js
	program string
	//go:embed LICENSE
	license string
	// Style is uPlot's style sheet.
	//
	//go:embed uPlot.min.css
	Style template.CSS
)

// Program returns the JavaScript source of the uPlot library, including its license.
func Program() template.JS { return template.JS("/*\n" + license + "*/\n" + program) }
