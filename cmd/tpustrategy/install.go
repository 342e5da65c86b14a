package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/tpustrategy/tpustrategy/internal/pins"
)

type installCmd struct {
	Kinds []string `arg:"" optional:"" help:"cpu, tpu, or both if none is given."`
}

// Help is the text under --help.
func (installCmd) Help() string {
	return `Installs the plugins that this module is tested with: pip fetches the pinned wheels, by hash, and their libraries go to the user's cache directory. Needs sh, awk and python3 with pip. What is there already and whole is left alone; a file that was cut short or changed is fetched again.

Examples:
  tpustrategy install cpu
  tpustrategy install`
}

// Run installs the plugins.
func (c *installCmd) Run(ctx context.Context, a *app, root *cli) error {
	kinds := c.Kinds
	if len(kinds) == 0 {
		kinds = []string{"cpu", "tpu"}
	}
	for _, kind := range kinds {
		if kind != "cpu" && kind != "tpu" {
			return usagef("install: no plugin kind %q; there are cpu and tpu", kind)
		}
	}
	dir, err := os.MkdirTemp("", "tpustrategy-install-")
	if err != nil {
		return &failure{Kind: "missing", Message: fmt.Sprintf("install: no place for the installer: %v; set TMPDIR to a directory that you can write to", err)}
	}
	defer os.RemoveAll(dir)
	for name, text := range map[string]string{"install.sh": pins.Script, "pins.tsv": pins.Table()} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			return err
		}
	}
	paths := map[string]string{}
	for _, kind := range kinds {
		var out bytes.Buffer
		cmd := exec.CommandContext(ctx, "sh", filepath.Join(dir, "install.sh"), kind)
		cmd.Env, cmd.Stdout, cmd.Stderr = a.environ, &out, a.stderr
		// The script and its pip end together, and the script clears away what it
		// has begun.
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) }
		cmd.WaitDelay = 10 * time.Second
		if err := cmd.Run(); err != nil {
			if ctx.Err() != nil {
				return fmt.Errorf("install %s: %w", kind, context.Cause(ctx))
			}
			if errors.Is(err, exec.ErrNotFound) {
				return &failure{Kind: "missing", Message: fmt.Sprintf("install %s: %v", kind, err)}
			}
			return &failure{Kind: "missing", Message: fmt.Sprintf("install %s: %v; its messages are above", kind, err)}
		}
		lines := strings.Split(strings.TrimSpace(out.String()), "\n")
		paths[kind] = lines[len(lines)-1]
		if !root.JSON {
			fmt.Fprintf(a.stdout, "%s  %s\n", kind, paths[kind])
		}
	}
	if root.JSON {
		return a.printJSON(paths)
	}
	return nil
}
