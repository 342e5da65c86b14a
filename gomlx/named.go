package gomlx

import (
	"fmt"
	"slices"

	"github.com/gomlx/compute"

	"github.com/tpustrategy/tpustrategy/internal/engine"
)

// A program that GoMLX distributes, or that it runs on a default device other than 0, runs on
// devices that GoMLX names by their numbers. Each value on such a device is unsharded.

// namedPartitions returns the device numbers on which GoMLX runs the program: the devices of a
// program that GoMLX distributes, in GoMLX's order, or defaultDevice for any other program.
func (c *executableState) namedPartitions(defaultDevice compute.DeviceNum) []int {
	if !c.isDistributed() {
		return []int{int(defaultDevice)}
	}
	all := make([]int, c.program.Replicas*c.program.Partitions)
	for i := range all {
		if all[i] = i; c.program.Devices != nil {
			all[i] = int(c.program.Devices[i])
		}
	}
	return all
}

// namedVariant returns the program compiled for the devices that namedPartitions returns. It
// compiles the program on first use.
func (c *executableState) namedVariant(defaultDevice compute.DeviceNum) (*variant, error) {
	b := c.backend
	if err := b.checkNamedDevices(); err != nil {
		return nil, err
	}
	devices := c.namedPartitions(defaultDevice)
	for _, num := range devices {
		if err := b.checkDevice(compute.DeviceNum(num)); err != nil {
			return nil, err
		}
	}
	key := fmt.Sprint("on ", devices)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.variants == nil {
		return nil, errExecutableFinalized
	}
	return c.cachedVariant(key, func() (*variant, error) {
		p := c.program
		text, err := p.Text()
		if err != nil {
			return nil, err
		}
		v := &variant{}
		if err := v.compile(b, p.Name, text, b.runtime.OptionsOn(devices, p.Replicas)); err != nil {
			return nil, wrapError("compile", fmt.Sprintf("program %q", p.Name), err)
		}
		return v, nil
	})
}

func (e *Executable) executeNamed(inputs []compute.Buffer, donate []bool,
	defaultDevice compute.DeviceNum) ([]compute.Buffer, error) {
	b, p := e.backend, e.state.program
	v, err := e.state.namedVariant(defaultDevice)
	if err != nil {
		return nil, err
	}
	if err := e.claim(inputs, donate); err != nil {
		return nil, err
	}
	defer releaseInputs(inputs, donate, true)
	defer releaseInputs(inputs, donate, false)
	args, results := engine.NewBufferTable(len(v.partitions), len(p.Parameters)), engine.NewBufferTable(len(v.partitions),
		len(p.Outputs))
	devices := e.state.namedPartitions(defaultDevice)
	for i, input := range inputs {
		num := devices[i/len(p.Parameters)]
		if args[slices.Index(v.partitions, num)][i%len(p.Parameters)],
			err = input.(*Buffer).state.valueOnDevice(compute.DeviceNum(num)); err != nil {
			return nil, e.inputError(i, err)
		}
	}
	if err := b.launch(v, args, results, nil); err != nil {
		return nil, err
	}
	for i, input := range inputs {
		if donate[i] {
			input.(*Buffer).state.invalidate(nil, false)
		}
	}
	var out []compute.Buffer
	for _, num := range devices {
		for r, shape := range p.Outputs {
			result := results[slices.Index(v.partitions, num)][r]
			resultShape := shape.Clone()
			resultShape.Dimensions = slices.Clone(result.Dims()) // one device's shard of a sharded result
			replicated, err := b.replicatedLayout(resultShape)
			if err != nil {
				return nil, err
			}
			l := &placement{replicated, b.runtime.Buffers()}
			l.Buffers[num] = result
			buf, err := b.newBuffer(&bufferState{backend: b, shape: resultShape, deviceNum: compute.DeviceNum(num),
				placements: []*placement{l}})
			if err != nil {
				return nil, err
			}
			out = append(out, buf)
		}
	}
	return out, nil
}
