package gomlxoverlay

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// gomlx is the module that is replaced by a link.
const gomlx = "github.com/gomlx/gomlx"

// Edit replaces the only occurrence of Old in a file with New.
type Edit struct{ File, Old, New string }

// Options describes the changes of a build.
type Options struct {
	// Module is the folder with the go.mod file of the build. It must require GoMLX. Relative paths
	// in its replace directives must be valid from the output folder.
	Module string
	// Add contains new files by path in the GoMLX module. The files must not exist there.
	Add map[string]string
	// Edits changes files of the GoMLX module. Standard changes files of the standard library, with
	// paths relative to its src folder.
	Edits, Standard []Edit
}

// Overlay is the result of Prepare.
type Overlay struct {
	// Module is the folder to build in. Dir is the folder of the written files.
	Module, Dir string
	// GoMLX is the link to the GoMLX module, and Version is the module's version.
	GoMLX, Version string
}

// Prepare writes the files of an overlay into dir. dir must exist and must not be changed while the
// overlay is in use. Prepare runs the go command to find modules, which downloads modules that are
// not in the cache.
func Prepare(ctx context.Context, dir string, o Options) (*Overlay, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	module, err := filepath.Abs(o.Module)
	if err != nil {
		return nil, err
	}
	where, err := run(ctx, module, "list", "-mod=mod", "-m", "-f", "{{.Dir}}\n{{.Version}}", gomlx)
	if err != nil {
		return nil, err
	}
	source, version, _ := strings.Cut(where, "\n")
	if source == "" {
		return nil, fmt.Errorf("gomlxoverlay: %s is not in the module cache: run go mod download in %s", gomlx, o.Module)
	}
	root, err := run(ctx, module, "env", "GOROOT")
	if err != nil {
		return nil, err
	}
	out := &Overlay{Module: module, Dir: dir, GoMLX: filepath.Join(dir, "gomlx"), Version: version}
	if err := os.Remove(out.GoMLX); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	if err := os.Symlink(source, out.GoMLX); err != nil {
		return nil, err
	}
	w := writer{dir: filepath.Join(dir, "overlay"), replace: map[string]string{}}
	if err := os.MkdirAll(w.dir, 0o755); err != nil {
		return nil, err
	}
	for _, name := range sorted(o.Add) {
		to := filepath.Join(out.GoMLX, filepath.FromSlash(name))
		if _, err := os.Stat(to); err == nil {
			return nil, fmt.Errorf("gomlxoverlay: add %s: GoMLX %s has that file: name another, or edit it", name, version)
		}
		if err := w.write(to, o.Add[name]); err != nil {
			return nil, err
		}
	}
	for _, e := range o.Edits {
		if err := w.edit(out.GoMLX, e); err != nil {
			return nil, err
		}
	}
	for _, e := range o.Standard {
		if err := w.edit(filepath.Join(root, "src"), e); err != nil {
			return nil, err
		}
	}
	list, err := json.MarshalIndent(map[string]any{"Replace": w.replace}, "", "  ")
	if err != nil {
		return nil, err
	}
	if err := os.WriteFile(filepath.Join(dir, "overlay.json"), list, 0o644); err != nil {
		return nil, err
	}
	return out, modules(module, dir, out.GoMLX)
}

// Flags returns the arguments for the commands go build, go run and go test in the folder Module.
func (o *Overlay) Flags() []string {
	return []string{"-mod=mod", "-modfile=" + filepath.Join(o.Dir, "go.mod"), "-overlay=" + filepath.Join(o.Dir,
		"overlay.json")}
}

// Build runs go build with the flags and further arguments.
func (o *Overlay) Build(ctx context.Context, arguments ...string) error {
	_, err := run(ctx, o.Module, append(append([]string{"build"}, o.Flags()...), arguments...)...)
	return err
}

// modules writes the go.mod and go.sum files of the module into dir. The go.mod file replaces GoMLX
// by the link.
func modules(module, dir, link string) error {
	text, err := os.ReadFile(filepath.Join(module, "go.mod"))
	if err != nil {
		return err
	}
	text = append(text, "\nreplace "+gomlx+" => "+link+"\n"...)
	if err := os.WriteFile(filepath.Join(dir, "go.mod"), text, 0o644); err != nil {
		return err
	}
	sums, err := os.ReadFile(filepath.Join(module, "go.sum"))
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "go.sum"), sums, 0o644)
}

// writer writes the files of an overlay.
type writer struct {
	dir     string
	replace map[string]string
}

// write writes text to a file and adds the file to the overlay in place of the file to.
func (w *writer) write(to, text string) error {
	from := filepath.Join(w.dir, fmt.Sprintf("%02d_%s", len(w.replace), filepath.Base(to)))
	w.replace[to] = from
	return os.WriteFile(from, []byte(text), 0o644)
}

// edit applies an edit to a file below root. The same file may have several edits.
func (w *writer) edit(root string, e Edit) error {
	to := filepath.Join(root, filepath.FromSlash(e.File))
	from, again := w.replace[to]
	if !again {
		from = to
	}
	text, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	if n := strings.Count(string(text), e.Old); n != 1 {
		return fmt.Errorf("gomlxoverlay: edit %s: %q is there %d times, want once: the file is of another version", e.File,
			e.Old, n)
	}
	changed := strings.Replace(string(text), e.Old, e.New, 1)
	if again {
		return os.WriteFile(from, []byte(changed), 0o644)
	}
	return w.write(to, changed)
}

func sorted(m map[string]string) []string {
	names := make([]string, 0, len(m))
	for name := range m {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// run returns the output of the go command without the trailing line break.
func run(ctx context.Context, dir string, arguments ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "go", arguments...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOWORK=off")
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("gomlxoverlay: go %s: %w\n%s", strings.Join(arguments, " "), err, stderr.String())
	}
	return strings.TrimRight(string(out), "\n"), nil
}
