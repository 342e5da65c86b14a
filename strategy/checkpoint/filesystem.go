package checkpoint

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// filesystem is what a save changes, so that tests can make each change fail.
type filesystem interface {
	Mkdir(path string) error
	// Create makes a new file.
	Create(path string) (writeFile, error)
	Rename(from, to string) error
	RemoveAll(path string) error
	// SyncDir brings a directory's entries to the disk.
	SyncDir(path string) error
}

type writeFile interface {
	io.WriteCloser
	Sync() error
}

type osFilesystem struct{}

func (osFilesystem) Mkdir(path string) error { return os.Mkdir(path, 0o755) }

func (osFilesystem) Create(path string) (writeFile, error) {
	return os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
}

func (osFilesystem) Rename(from, to string) error { return os.Rename(from, to) }

func (osFilesystem) RemoveAll(path string) error { return os.RemoveAll(path) }

func (osFilesystem) SyncDir(path string) error {
	d, err := os.Open(path)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}

const (
	stepPrefix = "step-"
	tempPrefix = ".saving-"
	oldPrefix  = ".removing-"
	lockFile   = ".lock"
)

// stepName is the name of a step's directory.
func stepName(step int64) string { return fmt.Sprintf("%s%010d", stepPrefix, step) }

// parseStep is the inverse of stepName.
func parseStep(name string) (int64, bool) {
	digits, ok := strings.CutPrefix(name, stepPrefix)
	step, err := strconv.ParseInt(digits, 10, 64)
	return step, ok && err == nil && step >= 0 && stepName(step) == name
}

// stepsIn lists the steps of a directory, ascending. A folder that has a step's name and nothing of
// a checkpoint in it is none.
func stepsIn(dir string) ([]int64, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, doing("list steps", "", err)
	}
	var steps []int64
	for _, e := range entries {
		if step, ok := parseStep(e.Name()); ok && e.IsDir() && holdsCheckpoint(filepath.Join(dir, e.Name())) {
			steps = append(steps, step)
		}
	}
	slices.Sort(steps)
	return steps, nil
}

// holdsCheckpoint reports whether a folder has a file of a checkpoint, whole or not. One that
// cannot be looked into counts.
func holdsCheckpoint(dir string) bool {
	for _, name := range []string{manifestFile, variablesFile} {
		if _, err := os.Lstat(filepath.Join(dir, name)); err == nil || !errors.Is(err, os.ErrNotExist) {
			return true
		}
	}
	return false
}

// leftovers lists what a save that was interrupted left behind.
func leftovers(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var paths []string
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), tempPrefix) || strings.HasPrefix(e.Name(), oldPrefix) {
			paths = append(paths, filepath.Join(dir, e.Name()))
		}
	}
	return paths, nil
}
