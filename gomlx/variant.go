package gomlx

import (
	"errors"
	"fmt"
	"slices"

	"github.com/tpustrategy/tpustrategy/internal/engine"
	"github.com/tpustrategy/tpustrategy/internal/hostdata"
	"github.com/tpustrategy/tpustrategy/lowering/ir"
	"github.com/tpustrategy/tpustrategy/lowering/spmd"
	"github.com/tpustrategy/tpustrategy/pjrt"
	"github.com/tpustrategy/tpustrategy/report"
	"github.com/tpustrategy/tpustrategy/sharding"
	"github.com/tpustrategy/tpustrategy/tpu/system"
)

// variant is the program of an Executable, compiled for one set of donated parameters, or for
// devices that GoMLX selects by number.
type variant struct {
	module     *spmd.Module // module and the layouts are only set for a program on all devices
	exe        system.Executable
	partitions []int // the partition of each row of a launch
	args       []*engine.Layout
	results    []*engine.Layout
	donors     []int // index of the parameter whose memory each result reuses, or -1
}

// reusableDonations selects the donated parameters whose memory a result can reuse, because a
// result has the same type. mask has one element for each parameter, and key is the mask as text.
func (c *executableState) reusableDonations(donated []bool) (mask []bool, key string) {
	main := c.program.Main()
	mask, text := make([]bool, len(main.Parameters)), make([]byte, len(main.Parameters))
	for i, v := range main.Parameters {
		text[i] = '0'
		if donated[i] && slices.ContainsFunc(main.Results, func(r ir.Result) bool { return r.Type.Equal(v.Type) }) {
			mask[i], text[i] = true, '1'
		}
	}
	return mask, string(text)
}

// variantFor returns the program compiled for a set of donated parameters. It compiles the program
// on first use.
func (c *executableState) variantFor(donated []bool) (*variant, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.variants == nil {
		return nil, errExecutableFinalized
	}
	if c.last != nil && slices.Equal(c.lastDonated, donated) { // the common case in a training loop
		return c.last, nil
	}
	mask, key := c.reusableDonations(donated)
	v, err := c.cachedVariant(key, func() (*variant, error) {
		v, err := c.buildVariant(mask)
		if err != nil {
			return nil, wrapError("compile", fmt.Sprintf("program %q", c.program.Name), err)
		}
		if onCompiled := c.backend.opts.OnCompiled; onCompiled != nil {
			compiled := &CompiledProgram{Module: v.module, Placements: slices.Clone(c.placements)}
			if loaded := system.UnwrapExecutable(v.exe); loaded != nil {
				compiled.Program = loaded.Executable()
			}
			onCompiled(compiled)
		}
		return v, nil
	})
	if err == nil {
		c.last, c.lastDonated = v, slices.Clone(donated)
	}
	return v, err
}

// cachedVariant returns the compiled program that is cached under key. If there is none, it calls
// build and caches the result. c.mu must be held.
func (c *executableState) cachedVariant(key string, build func() (*variant, error)) (v *variant, err error) {
	if v, ok := c.variants[key]; ok {
		return v, nil
	}
	if v, err = build(); err == nil {
		c.variants[key] = v
	}
	return v, err
}

// signature returns the shardings of the program's arguments and results for a set of donated
// parameters, and the parameter whose memory each result reuses, or -1. The partitioner chooses the
// sharding of the other results. With several processes, these results are replicated instead, so
// that each process can read them.
func (c *executableState) signature(donated []bool) (spmd.GlobalSignature, []int) {
	p, donors := c.program, matchDonated(c.program, donated)
	f := spmd.GlobalSignature{Mesh: c.backend.mesh, Logical: c.backend.logical}
	for i, name := range p.ParameterNames {
		f.Arguments = append(f.Arguments, spmd.GlobalTensor{Name: name, Spec: c.placements[i].Spec,
			InnerSpec: gatheredSpec(name, c.placements[i].Spec)})
	}
	for r, s := range p.Outputs {
		border := spmd.GlobalTensor{Spec: sharding.Replicated(s.Rank()), AutoSharded: !c.backend.runtime.IsMultiProcess()}
		if i := donors[r]; i >= 0 {
			border.Name, border.Spec, border.AutoSharded = p.ParameterNames[i], c.placements[i].Spec, false
			f.Arguments[i].Donated, f.Arguments[i].Result = true, r
		}
		f.Results = append(f.Results, border)
	}
	return f, donors
}

// buildVariant compiles the program. If the layout that the partitioner chose for a result is
// unknown or unsupported, it compiles the program again with replicated results.
func (c *executableState) buildVariant(donated []bool) (*variant, error) {
	sig, donors := c.signature(donated)
	v, err := c.buildForSignature(sig, donors)
	if !errors.Is(err, errLayout) {
		return v, err
	}
	for i := range sig.Results {
		sig.Results[i].AutoSharded = false
	}
	return c.buildForSignature(sig, donors)
}

func (c *executableState) buildForSignature(sig spmd.GlobalSignature, donors []int) (*variant, error) {
	m, err := spmd.AssembleGlobal(c.program, sig)
	if err != nil {
		return nil, err
	}
	if err := c.backend.checkAgreement(fmt.Sprintf("program %q", c.program.Name),
		"run the same program with the same seed (model.ParamInitialSeed) and options on each host",
		fmt.Append(slices.Clip(m.Text), constantNames(c.program))); err != nil {
		return nil, err
	}
	v := &variant{module: m, donors: donors}
	if err := v.compile(c.backend, c.program.Name, m.Text, c.backend.runtime.Options(1)); err != nil {
		return nil, err
	}
	if err := v.setLayouts(c.backend, sig); err != nil {
		return nil, errors.Join(err, v.exe.Close())
	}
	if err := c.callExplain(v); err != nil {
		return nil, errors.Join(err, v.exe.Close())
	}
	return v, nil
}

// callExplain calls Options.Explain, if it is set, once per program.
func (c *executableState) callExplain(v *variant) error {
	b := c.backend
	if b.opts.Explain == nil || c.isExplained {
		return nil
	}
	c.isExplained = true
	e := newExplanation(c.program.Name, v.module, c.placements, b.opts.Rules)
	if loaded := system.UnwrapExecutable(v.exe); loaded != nil {
		topology := b.runtime.Topology()
		target := report.Target{Name: topology.Name(), Devices: topology.NumDevices(), Hosts: topology.NumTasks()}
		if platform := b.runtime.Platform(); target.Name == "" || platform == "cpu" {
			target.Name = platform
		}
		var err error
		if e.Report, err = newReport(c.program.Name, v.module,
			report.Input{Target: target, Program: loaded.Executable()}); err != nil {
			return err
		}
	}
	b.opts.Explain(e)
	return nil
}

func (v *variant) compile(b *Backend, name string, text []byte, opts pjrt.CompileOptions) (err error) {
	if v.exe, _, err = b.runtime.Build(b.runtime.Context, name, pjrt.Program{Code: text, Trusted: true}, opts,
		nil); err != nil {
		return err
	}
	if v.partitions, err = b.runtime.LaunchPartitions(v.exe); err != nil {
		return errors.Join(err, v.exe.Close())
	}
	return nil
}

// launch executes a compiled program. args and results have one row per device of this process.
func (b *Backend) launch(v *variant, args, results [][]*pjrt.Buffer, donate []bool) error {
	b.runtime.Launch.Lock()
	defer b.runtime.Launch.Unlock()
	return v.exe.Execute(b.runtime.Context, args, results, pjrt.ExecuteOptions{Donate: donate})
}

// setLayouts sets the layouts of the arguments and results. It reads the layouts that the
// partitioner chose from the compiled program.
func (v *variant) setLayouts(b *Backend, sig spmd.GlobalSignature) error {
	for _, x := range v.module.Arguments {
		layout, err := b.layout(x)
		if err != nil {
			return err
		}
		v.args = append(v.args, layout)
	}
	shardings := resultShardings{executable: system.UnwrapExecutable(v.exe), numResults: len(v.module.Results)}
	for i := range v.module.Results {
		x := &v.module.Results[i]
		var layout *engine.Layout
		var err error
		if sig.Results[i].AutoSharded && b.mesh.Size() > 1 {
			layout, err = shardings.layout(b.mesh, x, i)
		} else {
			layout, err = b.layout(*x)
		}
		if err != nil {
			return err
		}
		v.results = append(v.results, layout)
	}
	return nil
}

func (b *Backend) layout(x spmd.ShardedTensor) (*engine.Layout, error) {
	t, err := hostdata.PJRTType(x.DType)
	if err != nil {
		return nil, err
	}
	return engine.NewLayout(t, x.GlobalDims, b.mesh, x.Spec)
}
