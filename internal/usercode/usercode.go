package usercode

import (
	"path"
	"runtime"
	"slices"
	"strings"
)

const ours = "github.com/tpustrategy/tpustrategy/"

// libraries are what stands between a user's line and the op that is made: Go's own packages through
// which libraries call back, GoMLX, and this module but for its programs.
var libraries = []string{"runtime.", "reflect.", "slices.", "maps.", "iter.", "sync.", "sort.", "testing.", "github.com/gomlx/", ours}

// programs are the folders of this module whose packages use the others.
var programs = []string{ours + "examples/", ours + "cmd/", ours + "internal/test/"}

// Library reports whether a frame belongs to what builds graphs. All tests are a user's.
func Library(f runtime.Frame) bool {
	return !strings.HasSuffix(f.File, "_test.go") && hasPrefix(f.Function, libraries) && !hasPrefix(f.Function, programs)
}

func hasPrefix(s string, prefixes []string) bool {
	return slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(s, p) })
}

// File is the file of a frame by its package's import path, without the folders of the machine that
// built the program: github.com/me/model/decoder.go. That of the package main is its name alone.
func File(f runtime.Frame) string {
	base := path.Base(f.File)
	folder, rest := path.Split(f.Function)
	name, _, _ := strings.Cut(rest, ".")
	if p := folder + strings.ReplaceAll(name, "%2e", "."); p != "main" {
		return p + "/" + base
	}
	return base
}

// Function is the short name of a frame's function: layers.Dense, decoder.Config.Loss.
func Function(f runtime.Frame) string {
	name := path.Base(f.Function)
	if at := strings.Index(name, "["); at > 0 { // of what type parameters
		name = name[:at]
	}
	return strings.NewReplacer("(*", "", ")", "", "%2e", ".").Replace(name)
}
