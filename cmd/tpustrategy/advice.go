package main

import (
	"fmt"
	"strings"

	"github.com/tpustrategy/tpustrategy/internal/ahead"
)

// advice says, of an example that does not fit, by how much and which options to try that are not
// given yet.
func (c *compileCmd) advice(o ahead.Outcome) string {
	if o.Error == nil || o.Error.Sort != "memory" || c.Example == "" {
		return ""
	}
	var try []string
	if c.ShardState != "parameters" {
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
	try = append(try, fmt.Sprintf("--logical %d", 2*c.Logical))
	if c.Batch > 1 {
		try = append(try, fmt.Sprintf("--batch %d", c.Batch/2))
	} else if c.Batch == 0 {
		try = append(try, "a smaller --batch")
	}
	text := "try " + strings.Join(try, ", ") + ", or a larger slice"
	if excess := excessOf(o.Error.Memory); excess != "" {
		text = excess + " too much: " + text
	}
	return "; " + text
}

// excessOf is by how much a program does not fit, such as "13.52G", as far as the compiler says it.
func excessOf(m *ahead.MemoryFailure) string {
	if m == nil {
		return ""
	}
	if m.Excess != "" {
		return m.Excess
	}
	var used, limit float64
	var unit, of string
	if _, err := fmt.Sscanf(m.Used, "%f%s", &used, &unit); err != nil {
		return ""
	}
	if _, err := fmt.Sscanf(m.Limit, "%f%s", &limit, &of); err != nil {
		return ""
	}
	size := map[string]float64{"K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
	if size[unit] == 0 || size[of] == 0 || used*size[unit] <= limit*size[of] {
		return ""
	}
	return fmt.Sprintf("%.2fG", (used*size[unit]-limit*size[of])/size["G"])
}
