package main

import (
	"fmt"
	"strings"

	"github.com/tpustrategy/tpustrategy/internal/ahead"
	"github.com/tpustrategy/tpustrategy/report"
)

// advise says, of an example that does not fit, by how much, and which options to try that are not
// given yet: in the error, and in the report.
func (c *compileCmd) advise(o *ahead.Outcome) {
	if o.Error == nil || o.Error.Sort != "memory" || c.Example == "" {
		return
	}
	var try []string
	if c.ShardState != "parameters" && (o.Report == nil || o.Report.Replicas > 1) {
		try = append(try, "--shard-state parameters")
	}
	if c.Example == gptModel.name {
		if c.Remat != "full" {
			try = append(try, "--remat full")
		}
		if c.Precision == "default" || c.Precision == "f32" || c.Precision == "highest" {
			try = append(try, "--precision bf16")
		}
	}
	if c.Whole {
		try = append(try, "no --whole")
	}
	if o.Report == nil || o.Report.Target.Devices == 0 || 2*c.Logical <= o.Report.Target.Devices {
		try = append(try, fmt.Sprintf("--logical %d", 2*c.Logical))
	}
	replicas := 1
	if o.Report != nil {
		replicas = max(o.Report.Replicas, 1)
	}
	switch half := c.Batch / 2; {
	case c.Batch%2 == 0 && half > 0 && half%replicas == 0:
		try = append(try, fmt.Sprintf("--batch %d", half))
	case c.Batch == 0 || half >= replicas:
		try = append(try, "a smaller --batch")
	}
	text := "try " + strings.Join(try, ", ") + ", or a larger slice"
	if o.Report != nil {
		// The flags take the place of the suggestions for a program of one's own.
		o.Error.Message = strings.TrimSuffix(o.Error.Message, "; "+strings.Join(o.Report.Suggestions, ", or "))
		o.Report.Suggestions = append(try, "a larger slice")
		if m := o.Report.Memory; m.Needs > m.Limit && m.Limit > 0 {
			text = report.Bytes(m.Needs-m.Limit) + " too much: " + text
		}
	}
	o.Error.Message += "; " + text
}

// options are those of an example that the report names: what was given, by the names of the flags.
func (c *compileCmd) options() map[string]string {
	if c.Example == "" {
		return nil
	}
	all := map[string]string{"example": c.Example, "logical": fmt.Sprint(c.Logical), "precision": c.Precision}
	for name, value := range map[string]string{"preset": c.Preset, "shard-state": c.ShardState, "remat": c.Remat} {
		if value != "" {
			all[name] = value
		}
	}
	for name, value := range map[string]int{"replicas": c.Replicas, "width": c.Width, "layers": c.Layers, "batch": c.Batch} {
		if value != 0 {
			all[name] = fmt.Sprint(value)
		}
	}
	for name, given := range map[string]bool{"by-slice": c.BySlice, "whole": c.Whole} {
		if given {
			all[name] = "true"
		}
	}
	return all
}
