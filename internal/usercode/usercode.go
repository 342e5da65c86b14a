package usercode

import (
	"path"
	"runtime"
	"slices"
	"strings"
)

const ours = "github.com/tpustrategy/tpustrategy/"

// libraries contains the prefixes of library functions: GoMLX, this module, and packages of the
// standard library that call callbacks.
var libraries = []string{"runtime.", "reflect.", "slices.", "maps.", "iter.", "sync.", "sort.", "testing.",
	"github.com/gomlx/", ours}

// programs contains the prefixes of functions in this module that count as user code.
var programs = []string{ours + "examples/", ours + "cmd/", ours + "internal/test/", ours + "lm/decoder."}

// IsLibrary reports whether a frame belongs to a library and not to the user's program. Frames in
// _test.go files always belong to the user's program.
func IsLibrary(f runtime.Frame) bool {
	return !strings.HasSuffix(f.File, "_test.go") && hasPrefix(f.Function, libraries) &&
		!hasPrefix(f.Function, programs)
}

func hasPrefix(s string, prefixes []string) bool {
	return slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(s, p) })
}

// File returns the file of a frame, prefixed with the import path of its package, such as
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

// Function returns the name of a frame's function without the directory of its package, such as
// layers.Dense or decoder.Config.Loss.
func Function(f runtime.Frame) string {
	name := path.Base(f.Function)
	if at := strings.Index(name, "["); at > 0 { // type parameters
		name = name[:at]
	}
	return strings.NewReplacer("(*", "", ")", "", "%2e", ".").Replace(name)
}
