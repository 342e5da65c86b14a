package usercode

import (
	"path"
	"runtime"
	"slices"
	"strings"
)

const ours = "github.com/tpustrategy/tpustrategy/"

// libraries are prefixes of library functions: packages of the standard library that call
// callbacks, GoMLX, and this module except for its programs.
var libraries = []string{"runtime.", "reflect.", "slices.", "maps.", "iter.", "sync.", "sort.", "testing.",
	"github.com/gomlx/", ours}

// programs are prefixes of packages of this module that are considered as user code.
var programs = []string{ours + "examples/", ours + "cmd/", ours + "internal/test/", ours + "lm/decoder."}

// Library reports whether a frame belongs to a library. Tests are user code.
func Library(f runtime.Frame) bool {
	return !strings.HasSuffix(f.File, "_test.go") && hasPrefix(f.Function, libraries) &&
		!hasPrefix(f.Function, programs)
}

func hasPrefix(s string, prefixes []string) bool {
	return slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(s, p) })
}

// File returns the file of a frame with the import path of its package, such as
// github.com/me/model/decoder.go. For package main, it returns only the file name.
func File(f runtime.Frame) string {
	base := path.Base(f.File)
	folder, rest := path.Split(f.Function)
	name, _, _ := strings.Cut(rest, ".")
	if p := folder + strings.ReplaceAll(name, "%2e", "."); p != "main" {
		return p + "/" + base
	}
	return base
}

// Function returns the short name of the function of a frame, such as layers.Dense or
// decoder.Config.Loss.
func Function(f runtime.Frame) string {
	name := path.Base(f.Function)
	if at := strings.Index(name, "["); at > 0 { // type parameters
		name = name[:at]
	}
	return strings.NewReplacer("(*", "", ")", "", "%2e", ".").Replace(name)
}
