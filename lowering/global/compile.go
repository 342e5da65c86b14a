package global

import (
	"context"
	"encoding/json"
	"io"
	"strings"

	"github.com/tpustrategy/tpustrategy/lowering/module"
	"github.com/tpustrategy/tpustrategy/pjrt"
	"github.com/tpustrategy/tpustrategy/report"
	"github.com/tpustrategy/tpustrategy/tpu/system"
)

// compileOptions are those of an assembled program on devices, partition by partition.
func compileOptions(m *module.Module, ids []int) pjrt.CompileOptions {
	return pjrt.CompileOptions{Replicas: 1, Partitions: m.Partitions, DeviceAssignment: [][]int{ids}, SPMD: m.Partitions > 1, Shardy: m.Partitions > 1}
}

// compileOn compiles an assembled program, by Options.Compiler if there is one.
func (b *Backend) compileOn(m *module.Module, ids []int) (system.Executable, error) {
	ctx, program, opts := context.Background(), pjrt.Lowered(m.Text, m.Facts()), compileOptions(m, ids)
	if client := b.sys.Client(); client != nil && b.opts.Compiler != nil {
		x, err := b.opts.Compiler.Compile(ctx, client, program, opts)
		if err != nil {
			return nil, err
		}
		return x, nil
	}
	return b.sys.Runtime().Compile(ctx, program, opts)
}

// explains says how a compiled program is split, if that is asked for. It is said once of each program,
// whatever it is compiled anew for.
func (c *compiled) explains(v *variant) error {
	b := c.backend
	if !b.opts.Explain || b.opts.Notes == nil || c.explained {
		return nil
	}
	c.explained = true
	e := explain(c.program.Name, v.module, c.places, b.opts.Rules)
	if loaded := system.Loaded(v.exe); loaded != nil {
		topology := b.sys.Topology()
		target := report.Target{Name: topology.Name(), Devices: topology.NumDevices(), Hosts: topology.NumTasks()}
		if platform := b.sys.Platform(); target.Name == "" || platform == "cpu" {
			target.Name = platform
		}
		var err error
		if e.Report, err = reportOf(c.program.Name, v.module, report.Input{Target: target, Program: loaded.Executable()}); err != nil {
			return err
		}
	}
	b.say(e)
	return nil
}

// say writes an explanation to Options.Notes, if that is asked for.
func (b *Backend) say(e *Explanation) {
	if !b.opts.Explain || b.opts.Notes == nil {
		return
	}
	var text strings.Builder
	_ = e.WriteText(&text) // a strings.Builder takes everything
	b.note(text.String())
}

// note writes lines to Options.Notes, each of which says who speaks. One call writes them, so that
// those of several goroutines do not mix. What cannot be written is lost: it is no reason to stop.
func (b *Backend) note(text string) {
	if b.opts.Notes == nil {
		return
	}
	b.noting.Lock()
	defer b.noting.Unlock()
	prefix := b.opts.Name + ": "
	lines := strings.ReplaceAll(strings.TrimSuffix(text, "\n"), "\n", "\n"+prefix)
	_, _ = io.WriteString(b.opts.Notes, prefix+lines+"\n")
}

// writeJSON writes a value as JSON.
func writeJSON(w io.Writer, v any) error {
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	return encoder.Encode(v)
}
