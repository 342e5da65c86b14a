package job

import (
	"fmt"
	"os"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/internal/files"
)

// Config says what to run. The comment of each field says what 0 or "" stands for.
type Config struct {
	// Replicas is the number of replicas, and Logical the number of logical devices of each. 0
	// stands for 1.
	Replicas, Logical int
	// Devices is the number of CPU devices. 0 stands for the TPU of this machine.
	Devices int
	// Steps is the number of training steps. 0 stands for a number that suits the data.
	Steps int
	// Batch is the number of examples in a step, over all replicas. 0 stands for a number that
	// suits the data.
	Batch int
	// Seed is the seed of all random choices.
	Seed uint64
	// Plugin is the path of the PJRT plugin. "" stands for the plugin that pjrt.Find finds.
	Plugin string
	// Data is a directory of MNIST's IDX files. "" stands for the digits that the module carries.
	Data string
	// Out is a folder, or the URL of an object store, for checkpoints. A run goes on from the last
	// one in it. "" saves none.
	Out string
	// SaveEvery is the number of steps between two checkpoints. 0 stands for 100. One is saved at the
	// end and when the run is interrupted, too.
	SaveEvery int
	// LossEvery is the number of steps between two readings of the loss, for which the host waits.
	// 0 stands for 10.
	LossEvery int
}

// UsageError reports which setting cannot be run, and why, in one line.
type UsageError struct {
	// Flag is the setting's flag of command digits, without the hyphen.
	Flag   string
	Reason string
	// Err is the cause, if there is one. Reason holds its text.
	Err error
}

// Error returns "-flag: reason".
func (e *UsageError) Error() string { return errkind.Text("-"+e.Flag, e.Reason, nil, "") }

// Kind returns ValueError.
func (*UsageError) Kind() errkind.Kind { return errkind.ValueError }

// Unwrap returns the cause.
func (e *UsageError) Unwrap() error { return e.Err }

// invalid is the error of data or settings that cannot be trained with.
func invalid(op, hint, format string, args ...any) error {
	return &errkind.Fault{Op: "job: " + op, Reason: fmt.Sprintf(format, args...), Hint: hint, Class: errkind.ValueError}
}

// normalize fills in what does not depend on the data.
func (c Config) normalize() Config {
	if c.Replicas == 0 {
		c.Replicas = 1
	}
	if c.Logical == 0 {
		c.Logical = 1
	}
	if c.SaveEvery == 0 {
		c.SaveEvery = 100
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
		{"replicas", c.Replicas, 1}, {"logical", c.Logical, 1}, {"devices", c.Devices, 0}, {"steps", c.Steps, 0}, {"batch", c.Batch, 0}, {"save-every", c.SaveEvery, 0},
	} {
		if f.value < f.least {
			return &UsageError{Flag: f.flag, Reason: fmt.Sprintf("%d; give a number from %d", f.value, f.least)}
		}
	}
	if c.Devices > maxDevices {
		return &UsageError{Flag: "devices", Reason: fmt.Sprintf("%d; give at most %d CPU devices", c.Devices, maxDevices)}
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
				err = errkind.New(errkind.ValueError, "not a directory")
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
		return c, invalid("fit", "give each a positive value", "the data %q lacks its hidden units, batch, epochs, learning rate or test images", d.Name)
	}
	if c.Batch == 0 {
		c.Batch = roundUp(d.Batch, c.Replicas)
	}
	if c.Batch%c.Replicas != 0 {
		return c, &UsageError{Flag: "batch", Reason: fmt.Sprintf(
			"%d examples cannot be cut into %d equal parts, one a replica; give a multiple of %d", c.Batch, c.Replicas, c.Replicas)}
	}
	if n := d.Train.Len(); c.Batch > n {
		return c, &UsageError{Flag: "batch", Reason: fmt.Sprintf("%d examples, but there are %d to train on; lower -batch", c.Batch, n)}
	}
	if c.Steps == 0 {
		c.Steps = d.Epochs * (d.Train.Len() / c.Batch)
	}
	return c, nil
}

func roundUp(n, multiple int) int { return (n + multiple - 1) / multiple * multiple }
