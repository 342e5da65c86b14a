package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/internal/pins"
)

type installCmd struct {
	Kinds []string `arg:"" optional:"" help:"Plugins to install: cpu, tpu or cuda. Default: cpu and tpu."`
	Path  bool     `help:"Print only the paths, for scripts."`
}

func (installCmd) Help() string {
	return `Installs the plugins that this module is tested with. pip downloads the pinned wheels, verifies their hashes, and the libraries are stored in the user's cache directory. The command needs sh, awk and python3 with pip. An intact library is not downloaded again; a truncated or modified one is.

Examples:
  tpustrategy install cpu
  tpustrategy install
  tpustrategy install cuda      (compiles for GPUs; half a gigabyte, with NVIDIA's assembler)
  TPU_LIBRARY_PATH=$(tpustrategy install tpu --path) ./program`
}

func (c *installCmd) Run(ctx context.Context, a *app, root *cli) error {
	kinds := c.Kinds
	if len(kinds) == 0 {
		kinds = []string{"cpu", "tpu"}
	}
	for _, kind := range kinds {
		if !slices.Contains([]string{"cpu", "tpu", "cuda"}, kind) {
			return usageErrorf("install", "there are cpu, tpu and cuda", "no plugin kind %q", kind)
		}
	}
	dir, err := os.MkdirTemp("", "tpustrategy-install-")
	if err != nil {
		return &failure{Category: "missing", Message: errkind.Format("install", "no place for the installer", err,
			"set TMPDIR to a directory that you can write to")}
	}
	defer os.RemoveAll(dir)
	for name, text := range map[string]string{"install.sh": pins.InstallScript, "pins.tsv": pins.TableText()} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			return err
		}
	}
	paths := map[string]string{}
	for _, kind := range kinds {
		var out bytes.Buffer
		cmd := exec.CommandContext(ctx, "sh", filepath.Join(dir, "install.sh"), kind)
		cmd.Env, cmd.Stdout, cmd.Stderr = a.environ, &out, a.stderr
		// Terminate the script together with pip; the script removes its partial files.
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) }
		cmd.WaitDelay = 10 * time.Second
		if err := cmd.Run(); err != nil {
			if ctx.Err() != nil {
				return &errkind.Fault{Op: "install", Subject: kind, Err: context.Cause(ctx)}
			}
			if errors.Is(err, exec.ErrNotFound) {
				return &failure{Category: "missing", Message: errkind.Format("install "+kind, "", err,
					"install sh, or set PATH so that it is found")}
			}
			return &failure{Category: "missing", Message: errkind.Format("install "+kind, "the installer failed", err,
				"see its messages above")}
		}
		lines := strings.Split(strings.TrimSpace(out.String()), "\n")
		paths[kind] = lines[len(lines)-1]
		switch {
		case root.JSON:
		case c.Path:
			fmt.Fprintln(a.stdout, paths[kind])
		default:
			fmt.Fprintf(a.stdout, "%s  %s\n", kind, paths[kind])
		}
	}
	if root.JSON {
		return a.printJSON(paths)
	}
	return nil
}
