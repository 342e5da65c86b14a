package main

import (
	_ "embed"
	"fmt"
	"strings"
	"text/template"

	clusterresolver "github.com/tpustrategy/tpustrategy/cluster_resolver"
	"github.com/tpustrategy/tpustrategy/internal/units"
)

//go:embed doctor.txt
var diagnosisForm string

// diagnosisText formats a diagnosis as text.
var diagnosisText = template.Must(template.New("doctor").Funcs(template.FuncMap{
	"join": strings.Join, "indent": indent, "state": pluginDiagnosis.status, "place": formatPosition,
	"bytes": units.Bytes,
	"line":  func(text string) string { return strings.ReplaceAll(strings.TrimSpace(text), "\n", "; ") },
}).Parse(diagnosisForm))

// status returns a short description such as "usable", "damaged" or "not found".
func (p pluginDiagnosis) status() string {
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

// formatPosition returns a description of this machine's position in its slice, such as "worker 1 of 4".
func formatPosition(c *clusterresolver.Cluster) string {
	text := fmt.Sprintf("%s of %d, from %s", c.Task, c.Spec.Len(), c.Source)
	if c.TPU.AcceleratorType != "" {
		text += ", " + c.TPU.AcceleratorType
	}
	if m := c.TPU.Multislice; m.NumSlices > 1 {
		text += fmt.Sprintf(", slice %d of %d", m.SliceID, m.NumSlices)
	}
	return text
}
