package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

func (a *app) printDiagnosis(d diagnosis) {
	w := a.stdout
	fmt.Fprintf(w, "version  %s\n", d.Version)
	fmt.Fprintf(w, "machine  %s, %s, %d CPUs\n", d.Platform, d.Go, d.CPUs)
	if len(d.TPUDevices) > 0 {
		fmt.Fprintf(w, "TPU      %s\n", strings.Join(d.TPUDevices, " "))
	} else {
		fmt.Fprintln(w, "TPU      none: no /dev/accel* and no /dev/vfio/*")
	}
	a.printMachine(d)
	for _, name := range slices.Sorted(maps.Keys(d.Env)) {
		fmt.Fprintf(w, "set      %s=%s\n", name, d.Env[name])
	}
	for _, p := range d.Plugins {
		a.printPlugin(p)
	}
	fmt.Fprintln(w, "\nwhat would run")
	for _, v := range d.Runs {
		mark := "no "
		if v.Can {
			mark = "yes"
		}
		fmt.Fprintf(w, "  %s  %s: %s\n", mark, v.Work, v.Why)
	}
	if len(d.Actions) > 0 {
		fmt.Fprintln(w, "\nwhat to do")
		for _, action := range d.Actions {
			fmt.Fprintf(w, "  %s\n", action)
		}
	}
}

func (a *app) printPlugin(p pluginDiagnosis) {
	w := a.stdout
	state := "not found"
	switch {
	case p.Usable:
		state = "usable"
	case p.Damaged:
		state = "damaged"
	case p.Path != "":
		state = "cannot be used"
	case p.Kind == "cuda":
		state = "not found (optional)"
	}
	fmt.Fprintf(w, "\n%s plugin: %s\n", p.Kind, state)
	for _, t := range p.Tried {
		if t.Path == "" {
			fmt.Fprintf(w, "  looked at  %s: %s\n", t.Source, t.Result)
			continue
		}
		fmt.Fprintf(w, "  looked at  %s: %s: %s\n", t.Source, t.Path, t.Result)
	}
	if p.Pinned != "" {
		fmt.Fprintf(w, "  pinned     %s\n", p.Pinned)
	}
	if p.SHA256 != "" {
		fmt.Fprintf(w, "  sha256     %s\n", p.SHA256)
	}
	if p.CLibrary != "" {
		fmt.Fprintf(w, "  needs      C library %s\n", p.CLibrary)
	}
	if p.Error != nil && p.Path != "" {
		fmt.Fprintf(w, "  error      %s\n", p.Error.Message)
		if p.Error.Log != "" {
			fmt.Fprintf(w, "  its log\n%s\n", indent(p.Error.Log, "    "))
		}
	}
	if p.Probe == nil {
		return
	}
	fmt.Fprintf(w, "  plugin     %s\n", p.Probe.Plugin)
	for _, name := range slices.Sorted(maps.Keys(p.Probe.Attributes)) {
		fmt.Fprintf(w, "  attribute  %s = %s\n", name, p.Probe.Attributes[name])
	}
	if p.Probe.Platform != "" {
		fmt.Fprintf(w, "  platform   %s\n", strings.ReplaceAll(strings.TrimSpace(p.Probe.Platform), "\n", "; "))
	}
	if p.Probe.Devices > 0 {
		fmt.Fprintf(w, "  devices    %d, %s\n", p.Probe.Devices, strings.Join(p.Probe.DeviceKinds, ", "))
	}
	if p.Probe.ClientError != "" {
		fmt.Fprintf(w, "  devices    %s\n", p.Probe.ClientError)
	}
	if p.Probe.AheadOfTime {
		fmt.Fprintf(w, "  describes  slices that are not here (tried %s: %d devices)\n", p.Probe.Topology, p.Probe.TopologyDevices)
	}
}
