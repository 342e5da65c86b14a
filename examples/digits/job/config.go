package job

import (
	"errors"
	"fmt"
	"os"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/internal/files"
)

// Config says what to run. Zero fields mean what their comments say.
type Config struct {
	// Replicas and Logical are the mesh: replicas, and logical devices of each; 1
	// if zero.
	Replicas, Logical int
	// Devices is the number of CPU devices; 0 is the TPU of this machine.
	Devices int
	// Steps is the number of training steps; what suits the data if zero.
	Steps int
	// Batch is the number of examples in a step, of all replicas together; what
	// suits the data if zero.
	Batch int
	// Seed decides everything random.
	Seed uint64
	// Plugin is the path of the PJRT plugin; found as pjrt.Find does if empty.
	Plugin string
	// Data is a directory of MNIST's IDX files; the digits of the module if empty.
	Data string
	// LossEvery is how many steps there are between two readings of the loss, for
	// which the host waits; 10 if zero.
	LossEvery int
}

// UsageError says which setting cannot be run, and why, in one line.
type UsageError struct {
	// Flag is the setting, as the flag of command digits.
	Flag   string
	Reason string
	// Err is the cause, if there is one; Reason says what matters of it.
	Err error
}

func (e *UsageError) Error() string { return fmt.Sprintf("-%s: %s", e.Flag, e.Reason) }

// Kind is ValueError.
func (*UsageError) Kind() errkind.Kind { return errkind.ValueError }

// Unwrap returns the cause.
func (e *UsageError) Unwrap() error { return e.Err }

// normalize fills in what does not depend on the data.
func (c Config) normalize() Config {
	if c.Replicas == 0 {
		c.Replicas = 1
	}
	if c.Logical == 0 {
		c.Logical = 1
	}
	if c.LossEvery == 0 {
		c.LossEvery = 10
	}
	return c
}

// check refuses settings that no data makes right.
func (c Config) check() error {
	for _, f := range []struct {
		flag  string
		value int
		least int
	}{
		{"replicas", c.Replicas, 1}, {"logical", c.Logical, 1}, {"devices", c.Devices, 0}, {"steps", c.Steps, 0}, {"batch", c.Batch, 0},
	} {
		if f.value < f.least {
			return &UsageError{Flag: f.flag, Reason: fmt.Sprintf("%d, but it counts: %d or more", f.value, f.least)}
		}
	}
	if c.Devices > maxDevices {
		return &UsageError{Flag: "devices", Reason: fmt.Sprintf("%d; at most %d CPU devices", c.Devices, maxDevices)}
	}
	// Dividing keeps the product from overflowing.
	if c.Devices > 0 && (c.Replicas > c.Devices || c.Logical > c.Devices/c.Replicas) {
		return &UsageError{Flag: "replicas", Reason: fmt.Sprintf(
			"%d replicas of %d logical devices do not fit on %d devices; lower -replicas or -logical, or raise -devices", c.Replicas, c.Logical, c.Devices)}
	}
	if c.Data != "" {
		err := files.Local(c.Data)
		if err == nil {
			var info os.FileInfo
			if info, err = os.Stat(c.Data); err == nil && !info.IsDir() {
				err = errors.New("not a directory")
			}
		}
		if err != nil {
			return &UsageError{Flag: "data", Reason: fmt.Sprintf("need a directory of MNIST's IDX files: %v", err), Err: err}
		}
	}
	return nil
}

// maxDevices bounds what one process is asked to simulate.
const maxDevices = 256

// fit fills in what depends on the data, and checks it.
func (c Config) fit(d Data) (Config, error) {
	if d.Hidden < 1 || d.Batch < 1 || d.Epochs < 1 || d.LearningRate <= 0 || d.Test.Len() == 0 {
		return c, fmt.Errorf("job: the data %q lacks its hidden units, batch, epochs, learning rate or test images; all are positive", d.Name)
	}
	if c.Batch == 0 {
		c.Batch = roundUp(d.Batch, c.Replicas)
	}
	if c.Batch%c.Replicas != 0 {
		return c, &UsageError{Flag: "batch", Reason: fmt.Sprintf(
			"%d examples cannot be cut into %d equal parts, one a replica; give a multiple of %d", c.Batch, c.Replicas, c.Replicas)}
	}
	if n := d.Train.Len(); c.Batch > n {
		return c, &UsageError{Flag: "batch", Reason: fmt.Sprintf("%d examples, but there are %d to train on", c.Batch, n)}
	}
	if c.Steps == 0 {
		c.Steps = d.Epochs * (d.Train.Len() / c.Batch)
	}
	return c, nil
}

func roundUp(n, multiple int) int { return (n + multiple - 1) / multiple * multiple }
