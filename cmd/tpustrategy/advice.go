package main

import (
	"fmt"
	"strings"

	"github.com/tpustrategy/tpustrategy/internal/ahead"
	"github.com/tpustrategy/tpustrategy/internal/units"
	"github.com/tpustrategy/tpustrategy/report"
)

// addSuggestions extends the error and the report of an example that does not fit into memory. It
// adds the amount of missing memory, and flags that reduce the memory use. It does not suggest
// flags that are already set or that the example rejects.
func (c *compileCmd) addSuggestions(o *ahead.Outcome) {
	if o.Error == nil || o.Error.Category != "memory" || c.Example == "" {
		return
	}
	try := append(c.flagsToTry(o.Report), "a larger slice")
	text := "try " + try[0]
	if n := len(try) - 1; n > 0 {
		text = "try " + strings.Join(try[:n], ", ") + ", or " + try[n]
	}
	if o.Report != nil {
		// The flags replace the suggestions for user programs.
		o.Error.Message = strings.TrimSuffix(o.Error.Message, "; "+strings.Join(o.Report.Suggestions, ", or "))
		o.Report.Suggestions = try
		if m := o.Report.Memory; m.Needs > m.Limit && m.Limit > 0 {
			text = units.Bytes(m.Needs-m.Limit) + " too much: " + text
		}
	}
	o.Error.Message += "; " + text
}

// flagsToTry returns the flags that reduce the memory use of an example. r is the report of the
// example, or nil if there is none.
func (c *compileCmd) flagsToTry(r *report.Report) (try []string) {
	m, size, err := findModel(c.Example, c.size())
	if err != nil {
		return nil
	}
	replicas, devices := 1, 0 // 0 if the number is not known
	if r != nil {
		replicas, devices = max(r.Replicas, 1), r.Target.Devices
	}
	if c.ShardState != "parameters" && (r == nil || r.Replicas > 1) {
		try = append(try, "--shard-state parameters")
	}
	if c.Example == gptModel.name && c.Remat != "full" {
		try = append(try, "--remat full")
	}
	if c.Precision == "default" || c.Precision == "f32" || c.Precision == "highest" {
		try = append(try, "--precision bf16")
	}
	if c.Whole && c.Logical > 1 {
		try = append(try, "no --whole")
	}
	logicalDevices := 2 * max(c.Logical, 1)
	doubled := max(c.Replicas, 1)
	if c.Replicas == 0 && devices > 0 {
		doubled = devices / logicalDevices
	}
	if (devices == 0 || doubled*logicalDevices <= devices) && doubled > 0 && m.canRun(size, doubled, logicalDevices) {
		try = append(try, fmt.Sprintf("--logical %d", logicalDevices))
	}
	if rows, err := m.rowsPerReplica(size, replicas); err == nil {
		rows = m.batch(size, rows)[0].Dimensions[0]
		if fewer := rows / 2 / replicas * replicas; fewer > 0 {
			try = append(try, fmt.Sprintf("--batch %d", fewer))
		}
	}
	return try
}

// canRun reports whether the model and its batch can be divided over replicas of p logical devices.
func (m exampleModel) canRun(size modelSize, replicas, p int) bool {
	_, err := m.rowsPerReplica(size, replicas)
	return err == nil && (m.checkFit == nil || m.checkFit(size, replicas, p) == nil)
}

// flagValues returns the flags of an example that are set, by name. The report lists them.
func (c *compileCmd) flagValues() map[string]string {
	if c.Example == "" {
		return nil
	}
	all := map[string]string{"example": c.Example, "logical": fmt.Sprint(c.Logical), "precision": c.Precision}
	for name, value := range map[string]string{"preset": c.Preset, "shard-state": c.ShardState, "remat": c.Remat} {
		if value != "" {
			all[name] = value
		}
	}
	for name, value := range map[string]int{"replicas": c.Replicas, "width": c.Width, "layers": c.Layers,
		"batch": c.Batch} {
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
