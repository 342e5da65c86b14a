package command

import "runtime/debug"

// Module is this module's path.
const Module = "github.com/tpustrategy/tpustrategy"

// Version is the version of this module in the program: "v0.1.0", or of a program that is built in
// the module's own folder "(devel)", with the commit behind it where Go's tools have noted that.
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
