package gomlx

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/gomlx/compute"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/pjrt"
	"github.com/tpustrategy/tpustrategy/pjrt/cache"
	"github.com/tpustrategy/tpustrategy/pjrt/worker"
	"github.com/tpustrategy/tpustrategy/sharding"
	"github.com/tpustrategy/tpustrategy/tpu/system"
)

// BackendName is the name under which the package registers a backend with [Exit] as
// Options.OnAheadOfTime. To handle the error of topology= in the program, call Register with this
// name and other Options.
const BackendName = "tpustrategy"

// init registers the backend. For topology=, a second process of this program compiles ahead of
// time. In that process, worker.Main does not return.
func init() { Register(BackendName, Options{Worker: worker.Main(), OnAheadOfTime: Exit}) }

// Register registers backends with GoMLX under name. compute.NewWithConfig("name:config"), or the
// same value of GOMLX_BACKEND, then calls [NewFromConfig] with opts. Options in the configuration
// string override opts, and opts.Name is set to name. Registering a name again replaces the
// previous registration.
//
// Register is not safe for concurrent use with the creation of backends: it changes a table of
// package compute without a lock.
func Register(name string, opts Options) {
	opts.Name = name
	compute.Register(name, func(config string) (compute.Backend, error) {
		b, err := NewFromConfig(context.Background(), config, opts)
		if err != nil {
			return nil, err
		}
		return b, nil
	})
}

// NewFromConfig opens devices and returns a backend over them. Closing the backend closes the
// devices. Canceling ctx cancels the opening. Plugins are searched for in environment variables and
// in the installer's directory. Errors match [ErrConfig] and wrap their cause, such as a
// [*logical.RuleError], a *pjrt.FindError or a *system.StartError.
//
// The config is a comma-separated list of options, which override the options in opts:
//
//	plugin=KIND        cpu, tpu, cuda, or the absolute path of a plugin; by default tpu if this
//	                   machine has a TPU, and otherwise cpu
//	devices=N          the number of CPU devices; by default the number of devices of a replica. All
//	                   devices of a TPU are used, and another number is an error
//	logical=P          the number of devices of a replica, over which rules split variables; 1 by default
//	axes=A:N+B:M       names and sizes of the axes of a replica's devices, slowest first
//	rules=FILE.json    a file with rules for the placement of variables (see [logical.ParseRules]), or
//	                   built-in sets such as megatron, fsdp, zero1 or megatron+fsdp (see
//	                   [logical.BuiltinRules])
//	precision=P        the precision of matrix products on a TPU: default, high or highest
//	cache=DIR          stores compiled programs in a directory; see package pjrt/cache
//	explain=1          writes an explanation of each program to standard error
//	topology=SLICE     compiles for another slice, such as v5e-16, v5e:4x4, 2x v5e-256 or cpu:8, and
//	                   does not run the program (see [NewAheadOfTime])
//	report=FILE        with topology: writes the report to a file, as a page if its name ends in
//	                   .html, and as JSON otherwise
//	plan=FILE          with topology: searches for the best sharding of the first training step and
//	                   writes the plan to a file; otherwise uses the plan in the file (see package plan)
//
// An example is "devices=8,logical=2,rules=megatron". A value that contains a comma must be in
// double quotes, within which \" is a quote and \\ a backslash: cache="/a,b". Colons need no
// quotes.
func NewFromConfig(ctx context.Context, config string, opts Options) (*Backend, error) {
	c, err := parseConfig(config)
	if err != nil {
		return nil, err
	}
	b, err := c.open(ctx, opts)
	if err != nil && !errors.Is(err, ErrConfig) {
		err = configError(config, "", "it cannot be used", "", err)
	}
	return b, err
}

func (c *config) applyTo(opts Options) Options {
	if c.logical > 0 {
		opts.LogicalDevices = c.logical
		opts.Axes = nil
	}
	if c.axes != nil {
		opts.Axes, opts.LogicalDevices = c.axes, 0
	}
	if c.precision != nil {
		opts.Precision = *c.precision
	}
	if opts.Log == nil {
		opts.Log = os.Stderr
	}
	opts.Log = &prefixWriter{prefix: opts.backendName() + ": ", to: opts.Log, hasProgressBar: usesProgressBar(opts.Log)}
	if c.explain {
		explain := opts.Explain
		opts.Explain = func(e *Explanation) {
			var text strings.Builder
			_ = e.WriteText(&text) // a strings.Builder takes everything
			_, _ = io.WriteString(opts.Log, text.String())
			if explain != nil {
				explain(e)
			}
		}
	}
	return opts
}

func (c *config) open(ctx context.Context, opts Options) (*Backend, error) {
	opts = c.applyTo(opts)
	fail := func(option string, err error, hint string) error {
		return configError(c.text, option, "it cannot be used", hint, err)
	}
	if c.cacheDir != "" {
		warnings := slog.New(slog.NewTextHandler(opts.Log, &slog.HandlerOptions{Level: slog.LevelWarn}))
		compileCache, err := cache.Open(c.cacheDir, cache.Options{Logger: warnings, Compiler: opts.Compiler})
		if err != nil {
			return nil, fail("cache", err, "")
		}
		opts.Compiler = compileCache
	}
	if c.topology != "" {
		return c.openAhead(ctx, opts)
	}
	if err := c.readPlan(); err != nil {
		return nil, err
	}
	options, err := c.systemOptions(opts)
	if err != nil {
		return nil, fail("plugin", err, "")
	}
	sys, err := system.Open(ctx, options)
	if err != nil {
		hint := ""
		if filepath.IsAbs(c.plugin) && c.devices == 0 {
			hint = "if it is a CPU plugin, give devices=N"
		} else if filepath.IsAbs(c.plugin) {
			hint = "if it is no CPU plugin, leave devices out"
		}
		return nil, fail("plugin", err, hint)
	}
	n := sys.Topology().NumDevices()
	if c.devices != 0 && c.devices != n {
		err := configError(c.text, "devices", fmt.Sprintf("the %s has %d devices, all of which are used", sys.Platform(), n),
			"leave devices out, or choose CPU devices with plugin=cpu", nil)
		return nil, errors.Join(err, sys.Close())
	}
	return c.openOn(n, opts, func(opts Options) (*Backend, error) { return New(sys, opts) }, sys.Close)
}

// openOn opens a backend over the given number of devices, with the plan and the rules of the
// configuration string. The backend calls closeDevices when it is closed. If openOn fails, it calls
// closeDevices itself.
func (c *config) openOn(devices int, opts Options, open func(Options) (*Backend, error),
	closeDevices func() error) (b *Backend, err error) {
	defer func() {
		if err != nil {
			b, err = nil, errors.Join(err, closeDevices())
		}
	}()
	if opts, err = c.withPlan(devices, opts); err != nil {
		return nil, err
	}
	mesh, _, err := newMeshes(devices, opts)
	if err != nil {
		return nil, err
	}
	if opts, err = c.withRules(mesh, opts); err != nil {
		return nil, err
	}
	if b, err = open(opts); err != nil {
		return nil, err
	}
	b.closers = append(b.closers, closeDevices)
	b.warnIdleAxes()
	return b, nil
}

func (c *config) withRules(mesh sharding.Mesh, opts Options) (Options, error) {
	if c.rules == "" {
		return opts, nil
	}
	var err error
	if strings.HasSuffix(c.rules, ".json") || strings.ContainsRune(c.rules, filepath.Separator) {
		opts.Rules, err = logical.ReadRules(c.rules)
	} else {
		opts.Rules, err = logical.BuiltinRules(c.rules, mesh)
	}
	opts.RulesName = c.rules
	if err == nil {
		err = opts.validate(mesh)
	}
	if err != nil {
		return opts, configError(c.text, "rules", "they cannot be used", "", err)
	}
	return opts, nil
}

func (c *config) systemOptions(opts Options) (system.Options, error) {
	o, kind := system.Options{CPUDevices: c.devices}, c.plugin
	switch {
	case filepath.IsAbs(kind):
		o.Plugin = kind
		return o, nil
	case kind == "" && system.HasTPU():
		kind = "tpu"
	case kind == "":
		kind = "cpu"
	}
	if kind != "cpu" && c.devices > 0 {
		return o, &errkind.Fault{Op: "gomlx: devices",
			Reason: fmt.Sprintf("%d is a number of CPU devices, and the %s plugin creates none", c.devices, kind),
			Hint:   "leave it out to use all devices, or give plugin=cpu", Class: errkind.ValueError}
	}
	if kind == "cpu" && o.CPUDevices == 0 {
		o.CPUDevices = opts.devicesPerReplica()
		if c.followedPlan != nil {
			o.CPUDevices = c.followedPlan.Replicas * c.followedPlan.Logical()
		}
	}
	if kind == "tpu" && !system.HasTPU() {
		return o, system.ErrNoTPU
	}
	// Without a home directory, the installer's directory is not searched.
	cacheDir, _ := os.UserCacheDir()
	found, err := pjrt.FindPlugin(pjrt.FindOptions{Kind: kind, Getenv: os.Getenv, GOARCH: runtime.GOARCH,
		UserCacheDir: cacheDir, Stat: os.Stat})
	o.Plugin = found.Path
	return o, err
}
