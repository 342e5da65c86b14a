package command

import "runtime/debug"

// Module is the path of this module.
const Module = "github.com/tpustrategy/tpustrategy"

// Version returns the version of this module in the running program, such as "v0.1.0". If the
// program was built from a working copy, Version returns "(devel)" followed by the commit, if
// known.
func Version() string {
	build, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	version, set := build.Main.Version, map[string]string{}
	for _, dep := range build.Deps {
		if dep.Path == Module {
			version = dep.Version
		}
	}
	for _, s := range build.Settings {
		set[s.Key] = s.Value
	}
	if revision := set["vcs.revision"]; revision != "" {
		version += " " + revision[:min(len(revision), 12)]
		if set["vcs.modified"] == "true" {
			version += ", changed"
		}
	}
	return version
}
