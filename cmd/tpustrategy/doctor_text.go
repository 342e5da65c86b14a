package main

import (
	_ "embed"
	"fmt"
	"strings"
	"text/template"

	clusterresolver "github.com/tpustrategy/tpustrategy/cluster_resolver"
)

//go:embed doctor.txt
var diagnosisForm string

// diagnosisText is the template for the text of a diagnosis.
var diagnosisText = template.Must(template.New("doctor").Funcs(template.FuncMap{
	"join": strings.Join, "indent": indent, "state": pluginDiagnosis.state, "place": placeOf,
	"gib":  func(bytes int64) string { return fmt.Sprintf("%.1f GiB", float64(bytes)/(1<<30)) },
	"line": func(text string) string { return strings.ReplaceAll(strings.TrimSpace(text), "\n", "; ") },
}).Parse(diagnosisForm))

// state returns a description of whether the plugin is usable.
func (p pluginDiagnosis) state() string {
	switch {
	case p.Usable:
		return "usable"
	case p.Damaged:
		return "damaged"
	case p.Path != "":
		return "cannot be used"
	case p.Kind == "cuda":
		return "not found (optional)"
	}
	return "not found"
}

// placeOf returns a description of this machine's position in its slice.
func placeOf(c *clusterresolver.Cluster) string {
	text := fmt.Sprintf("%s of %d, from %s", c.Task, c.Spec.Len(), c.Source)
	if c.TPU.AcceleratorType != "" {
		text += ", " + c.TPU.AcceleratorType
	}
	if m := c.TPU.Multislice; m.NumSlices > 1 {
		text += fmt.Sprintf(", slice %d of %d", m.SliceID, m.NumSlices)
	}
	return text
}
