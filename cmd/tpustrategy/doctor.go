package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/internal/child"
	"github.com/tpustrategy/tpustrategy/internal/command"
	"github.com/tpustrategy/tpustrategy/internal/files"
	"github.com/tpustrategy/tpustrategy/internal/hostfacts"
	"github.com/tpustrategy/tpustrategy/internal/pins"
	"github.com/tpustrategy/tpustrategy/pjrt"
)

type doctorCmd struct{}

func (doctorCmd) Help() string {
	return `Looks for each plugin where the library looks, opens it in a process of its own, and says what would run.
Reads the machine too: huge pages, free memory, C library; and, on a machine with a TPU, its metadata and variables.
Each problem is printed with the command that fixes it.

Example:
  tpustrategy doctor

Ends with exit code 3 if nothing would run.`
}

// diagnosis is the JSON output of the doctor command.
type diagnosis struct {
	Version  string            `json:"version"`
	Go       string            `json:"go"`
	Platform string            `json:"platform"`
	CPUs     int               `json:"cpus"`
	Env      map[string]string `json:"environment,omitempty"`
	// TPUDevices lists the device files of the TPUs on this machine.
	TPUDevices []string `json:"tpu_devices"`
	// Machine describes the machine. Findings lists problems to fix before a job runs.
	Machine  hostfacts.Facts     `json:"machine"`
	Findings []hostfacts.Finding `json:"findings,omitempty"`
	// Slice is the result of the cluster resolvers. It is nil on a machine without a TPU and
	// without the environment variables of a job.
	Slice   *sliceDiagnosis   `json:"slice,omitempty"`
	Plugins []pluginDiagnosis `json:"plugins"`
	Runs    []verdict         `json:"runs"`
	// Actions lists commands and changes that fix the problems, the most important one first.
	Actions []string `json:"actions"`
}

type pluginDiagnosis struct {
	Kind   string `json:"kind"`
	Usable bool   `json:"usable"`
	Path   string `json:"path,omitempty"`
	Source string `json:"source,omitempty"`
	Pinned string `json:"pinned,omitempty"`
	// SHA256 is the hash of the plugin file.
	SHA256 string `json:"sha256,omitempty"`
	// CLibrary is the minimum version of the GNU C library that the plugin requires.
	CLibrary string `json:"c_library,omitempty"`
	// Damaged is true if the file changed after the installer stored it.
	Damaged bool         `json:"damaged,omitempty"`
	Tried   []candidate  `json:"tried"`
	Probe   *probeAnswer `json:"probe,omitempty"`
	Error   *failure     `json:"error,omitempty"`
	// Fix is a suggestion that resolves Error.
	Fix string `json:"fix,omitempty"`
}

type candidate struct {
	Source string `json:"source"`
	Path   string `json:"path,omitempty"`
	Result string `json:"result"`
}

// verdict reports whether this machine can be used for a kind of work, such as compiling for TPU
// slices.
type verdict struct {
	Work string `json:"work"`
	Can  bool   `json:"can"`
	Why  string `json:"why"`
}

// environmentOfInterest lists the environment variables that the diagnosis shows.
var environmentOfInterest = []string{
	"TPUSTRATEGY_CPU_PLUGIN", "TPUSTRATEGY_TPU_PLUGIN", "TPUSTRATEGY_CUDA_PLUGIN", "TPU_LIBRARY_PATH",
	"TPU_NAME", "TPU_WORKER_ID", "TPU_WORKER_HOSTNAMES", "TPU_ACCELERATOR_TYPE", "TPU_TOPOLOGY", "TPU_PROCESS_ADDRESSES",
	"TPU_PROCESS_BOUNDS", "TPU_HOST_BOUNDS", "TPU_SKIP_MDS_QUERY", "TF_CONFIG", "LIBTPU_INIT_ARGS",
	"MEGASCALE_COORDINATOR_ADDRESS", "MEGASCALE_NUM_SLICES", "MEGASCALE_SLICE_ID",
}

func (c *doctorCmd) Run(ctx context.Context, a *app, root *cli) error {
	d := a.diagnose(ctx)
	if ctx.Err() != nil {
		return &errkind.Fault{Op: "doctor", Err: context.Cause(ctx)}
	}
	err := error(nil)
	if root.JSON {
		err = a.printJSON(d)
	} else {
		err = diagnosisText.Execute(a.stdout, d)
	}
	if err != nil {
		return err
	}
	if !slices.ContainsFunc(d.Runs, func(v verdict) bool { return v.Can }) {
		return &failure{Category: "missing", Message: "doctor: nothing would run here; " + strings.Join(d.Actions, "; ")}
	}
	return nil
}

func (a *app) diagnose(ctx context.Context) diagnosis {
	d := diagnosis{Version: command.Version(),
		Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH, CPUs: runtime.NumCPU(),
		Env: map[string]string{}, TPUDevices: tpuDevices(), Actions: []string{},
	}
	for _, name := range environmentOfInterest {
		if value := a.getenv(name); value != "" {
			d.Env[name] = value
		}
	}
	for _, kind := range []string{"cpu", "tpu", "cuda"} {
		d.Plugins = append(d.Plugins, a.diagnosePlugin(ctx, kind, len(d.TPUDevices) > 0))
	}
	cpu, tpus, cuda := d.Plugins[0], d.Plugins[1], d.Plugins[2]
	d.Runs = []verdict{
		{Work: "steps on CPU devices", Can: cpu.Usable, Why: explainPlugin(cpu)},
		{Work: "steps on this machine's TPU", Can: tpus.Usable && tpus.Probe != nil && tpus.Probe.Devices > 0,
			Why: explainTPU(tpus, d.TPUDevices)},
		{Work: "compiling ahead of time for TPU slices", Can: tpus.Usable && tpus.Probe != nil && tpus.Probe.AheadOfTime,
			Why: explainPlugin(tpus)},
	}
	for _, p := range []pluginDiagnosis{cpu, tpus} {
		switch {
		case p.Usable:
		case p.Path == "" && len(p.Tried) > 0 && p.Tried[len(p.Tried)-1].Source != "installer" &&
			strings.HasPrefix(p.Tried[len(p.Tried)-1].Source, "$"):
			d.Actions = append(d.Actions, fmt.Sprintf("correct or unset %s", p.Tried[len(p.Tried)-1].Source))
		case p.Path == "" && p.Pinned == "":
			d.Actions = append(d.Actions,
				fmt.Sprintf("no %s plugin is published for %s: set $TPUSTRATEGY_%s_PLUGIN to one that you built", p.Kind,
					d.Platform, strings.ToUpper(p.Kind)))
		case p.Path == "" && a.cacheDir == "":
			d.Actions = append(d.Actions, fmt.Sprintf("set $HOME, then run `tpustrategy install %s` if the plugin is not there",
				p.Kind))
		case p.Path == "":
			d.Actions = append(d.Actions, fmt.Sprintf("run `tpustrategy install %s`", p.Kind))
		case p.Fix != "":
			d.Actions = append(d.Actions, p.Fix)
		case p.Damaged:
			d.Actions = append(d.Actions, fmt.Sprintf("run `tpustrategy install %s` again: %s is damaged", p.Kind, p.Path))
		default:
			d.Actions = append(d.Actions, fmt.Sprintf("replace %s, which cannot be used", p.Path))
		}
	}
	if !cuda.Usable && cuda.Path != "" {
		d.Actions = append(d.Actions, fmt.Sprintf("replace or unset %s, which cannot be used", cuda.Path))
	}
	a.diagnoseMachine(&d)
	a.diagnoseSlice(ctx, &d)
	return d
}

// tpuDevices returns the device files of the TPUs on this machine.
func tpuDevices() []string {
	found := []string{}
	for _, pattern := range []string{"/dev/accel*", "/dev/vfio/[0-9]*"} {
		// The patterns are well formed, which is Glob's only error.
		matches, _ := filepath.Glob(pattern)
		found = append(found, matches...)
	}
	return found
}

// findPlugin searches for a plugin in the same places as pjrt.FindPlugin. kind is "cpu", "tpu" or
// "cuda". path is the value of --plugin, or "".
func (a *app) findPlugin(kind, path string) (pjrt.Location, error) {
	found, err := pjrt.FindPlugin(pjrt.FindOptions{Kind: kind, Path: path, Getenv: a.getenv, GOARCH: runtime.GOARCH,
		UserCacheDir: a.cacheDir, Stat: func(name string) (fs.FileInfo, error) { return os.Stat(name) }})
	if missing := (*pjrt.FindError)(nil); path != "" && errors.As(err, &missing) {
		err = &failure{Category: "missing", Message: errkind.Format("--plugin "+path, "", missing.Tried[0].Err,
			"correct it, or leave it out")}
	}
	return found, err
}

func (a *app) diagnosePlugin(ctx context.Context, kind string, haveTPU bool) pluginDiagnosis {
	d := pluginDiagnosis{Kind: kind, Tried: []candidate{}}
	if pin, err := pins.Find(kind, runtime.GOARCH); err == nil {
		d.Pinned = pin.Package + " " + pin.Version
	}
	found, err := a.findPlugin(kind, "")
	candidates := found.Tried
	var missing *pjrt.FindError
	if errors.As(err, &missing) {
		candidates = missing.Tried
	}
	for _, c := range candidates {
		if c.Source == "Path" { // this command has no option for a path
			continue
		}
		t := candidate{Source: c.Source, Path: c.Path, Result: "found"}
		if c.Err != nil {
			t.Result = c.Err.Error()
		}
		d.Tried = append(d.Tried, t)
	}
	if err != nil {
		d.Error = classify(err)
		return d
	}
	d.Path, d.Source = found.Path, found.Source
	if _, err := pjrt.VerifyPlugin(found.Path); err != nil {
		d.Error = classify(err)
		d.Fix = permissionFix(err)
	}
	d.SHA256, d.Damaged = hashPlugin(found, kind)
	if d.Damaged && d.Error == nil {
		d.Error = &failure{Category: "missing", Message: errkind.Format(found.Path,
			fmt.Sprintf("it is not the library of %s: its SHA-256 is %s", d.Pinned, d.SHA256), nil, "")}
	}
	if d.Error != nil {
		return d // an untrusted plugin is not loaded
	}
	request := probeRequest{Path: found.Path, Kind: kind, Client: kind != "tpu" || haveTPU}
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	env := a.environ
	if kind == "tpu" && !haveTPU {
		env = a.quietEnviron()
	}
	answer, err := a.runChild(ctx, "opening the "+kind+" plugin", childRequest{Probe: &request}, child.Command{Env: env})
	if err != nil {
		d.Error = classify(err)
		return d
	}
	d.Usable, d.Probe = true, answer.Probe
	return d
}

// hashPlugin returns the SHA-256 of a plugin file, or "" if it cannot be read. damaged is true if
// the file changed after the installer stored it.
func hashPlugin(found pjrt.Location, kind string) (sum string, damaged bool) {
	sum, err := files.SHA256(found.Path)
	if err != nil {
		return "", false // the file cannot be read, but may be undamaged
	}
	pin, err := pins.Find(kind, runtime.GOARCH)
	return sum, err == nil && found.Source == "installer" && sum != pin.LibrarySHA256
}

// permissionFix returns the suggestion for a plugin file that other users can modify. err is an
// error of pjrt.VerifyPlugin.
func permissionFix(err error) string {
	var wrong *pjrt.PathError
	if !errors.As(err, &wrong) {
		return ""
	}
	return wrong.Hint
}

// probeTimeout limits the time to open a plugin. libtpu can block forever if another process uses the TPU.
const probeTimeout = 2 * time.Minute

func explainPlugin(p pluginDiagnosis) string {
	switch {
	case p.Usable:
		return p.Probe.Plugin
	case p.Error != nil && p.Path != "":
		return p.Error.Message
	}
	return "no " + p.Kind + " plugin found"
}

func explainTPU(p pluginDiagnosis, devices []string) string {
	switch {
	case !p.Usable:
		return explainPlugin(p)
	case len(devices) == 0:
		return "no TPU on this machine: no /dev/accel* and no /dev/vfio/*"
	case p.Probe.ClientError != "":
		return p.Probe.ClientError
	}
	return fmt.Sprintf("%d devices", p.Probe.Devices)
}
