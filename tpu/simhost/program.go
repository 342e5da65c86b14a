package simhost

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"regexp"
	"slices"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/pjrt"
	"github.com/tpustrategy/tpustrategy/tpu/system"
)

// program is a compiled program that the processes of a cluster share.
type program struct {
	name, fingerprint string
	processes         []int // the processes that have devices of the program, ascending
	compiled          system.Executable
	loaded            *pjrt.LoadedExecutable
	refs              int // guarded by Cluster.compiling
}

func (x *program) op() string { return fmt.Sprintf("launch of %q", x.name) }

var moduleName = regexp.MustCompile(`(?m)^\s*module @([\w.\-]+)`)

// compile returns the compiled program for the given code and options. Each program is compiled
// only once for all processes.
func (c *Cluster) compile(ctx context.Context, p *process, code pjrt.Program, opts pjrt.CompileOptions) (*program,
	error) {
	hash := sha256.New()
	fmt.Fprintf(hash, "%s\n%d %d %v %t %t %v\n", code.Format, opts.Replicas, opts.Partitions, opts.DeviceAssignment,
		opts.SPMD, opts.Shardy, opts.Overrides)
	hash.Write(code.Code)
	key := hex.EncodeToString(hash.Sum(nil))
	c.compiling.Lock()
	defer c.compiling.Unlock()
	x, ok := c.programs[key]
	if !ok {
		x = &program{name: "unnamed", fingerprint: key[:12]}
		if m := moduleName.FindSubmatch(code.Code); m != nil {
			x.name = string(m[1])
		}
		var err error
		if x.processes, err = c.assignedProcesses(p, x.name, opts.DeviceAssignment); err != nil {
			return nil, err
		}
		if c.opts.Compiler != nil {
			x.compiled, err = c.opts.Compiler.Compile(ctx, c.base.Client(), code, opts)
		} else {
			x.compiled, err = c.base.Runtime().Compile(ctx, code, opts)
		}
		if err != nil {
			return nil, err
		}
		x.loaded = system.UnwrapExecutable(x.compiled)
		c.programs[key] = x
	}
	if !slices.Contains(x.processes, p.index) {
		return nil, fault("compile", "%q uses no device of %s", x.name, p.name())
	}
	x.refs++
	return x, nil
}

// assignedProcesses returns the processes whose devices the assignment contains, in ascending
// order. It returns an error if the assignment contains no device of p.
func (c *Cluster) assignedProcesses(p *process, name string, assignment [][]int) ([]int, error) {
	if assignment == nil {
		return nil, &errkind.Fault{Op: "simhost: compile", Reason: fmt.Sprintf("%q has no device assignment", name),
			Hint: "set DeviceAssignment, which is required for several processes", Class: errkind.ValueError}
	}
	var processes []int
	for task, ids := range c.topology.DeviceIDs() {
		for _, row := range assignment {
			for _, id := range row {
				if slices.Contains(ids, id) {
					processes = append(processes, task)
				}
			}
		}
	}
	processes = slices.Compact(processes)
	if !slices.Contains(processes, p.index) {
		return nil, fault("compile", "%q uses the devices %v, but none of %s", name, assignment, p.name())
	}
	return processes, nil
}

// release unregisters a user of a program. The last user closes the program.
func (c *Cluster) release(x *program) error {
	c.compiling.Lock()
	defer c.compiling.Unlock()
	if x.refs--; x.refs > 0 {
		return nil
	}
	for key, other := range c.programs {
		if other == x {
			delete(c.programs, key)
		}
	}
	return x.compiled.Close()
}
