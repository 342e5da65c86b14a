package backend

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"

	"github.com/gomlx/compute"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/lowering"
	"github.com/tpustrategy/tpustrategy/pjrt"
)

// Register offers backends to GoMLX under name, so that compute.NewWithConfig("name:config"), or
// the GOMLX_BACKEND variable set to it, makes one. find says where plugins are looked for, as
// pjrt.Find takes it; its Kind and Path come from the config, and the zero value looks where the
// commands do. Registering a name again replaces it.
//
// Register changes a table of package compute that has no lock: call it before backends are made.
//
// See NewFromConfig for the config.
func Register(name string, find pjrt.FindOptions) {
	compute.Register(name, func(config string) (compute.Backend, error) {
		b, err := NewFromConfig(context.Background(), config, Options{Name: name}, find)
		if err != nil {
			return nil, err
		}
		return b, nil
	})
}

// NewFromConfig opens a plugin and a client of its own for a backend, which closes the client with
// itself. ctx bounds the opening. The zero pjrt.FindOptions look where the commands do: at what the
// environment names and where the installer puts plugins. A plugin that is not there is a
// *pjrt.FindError, which lists the places.
//
// The config is a plugin's kind, "cpu", "tpu" or "cuda" ("cpu" if empty), or the absolute path of
// one, then any of these, each after a comma:
//
//	devices=N          number of devices of the CPU plugin; 1 unless given
//	precision=P        default, high or highest
//	alias              Options.AliasDonated
//
// as in "cpu,devices=8" or "tpu,precision=highest,alias".
func NewFromConfig(ctx context.Context, config string, opts Options, find pjrt.FindOptions) (*Backend, error) {
	parsed, err := parseConfig(config)
	if err != nil {
		return nil, err
	}
	if find.Stat == nil && find.Getenv == nil && find.GOARCH == "" && find.UserCacheDir == "" {
		find = here()
	}
	find.Kind, find.Path = parsed.kind, parsed.path
	found, err := pjrt.Find(find)
	if err != nil {
		return nil, failed("config", strconv.Quote(config), err)
	}
	plugin, err := pjrt.Open(found.Path)
	if err != nil {
		return nil, failed("config", strconv.Quote(config), err)
	}
	var clientOpts pjrt.ClientOptions
	if parsed.kind == "cpu" && parsed.path == "" {
		clientOpts.Options = map[string]any{"cpu_device_count": int64(max(parsed.devices, 1))}
	} else if parsed.devices > 0 {
		clientOpts.Options = map[string]any{"cpu_device_count": int64(parsed.devices)}
	}
	client, err := plugin.NewClient(ctx, clientOpts)
	if err != nil {
		return nil, failed("config", strconv.Quote(config), err)
	}
	if parsed.precision != nil {
		opts.Precision = *parsed.precision
	}
	opts.AliasDonated = opts.AliasDonated || parsed.alias
	b, err := New(client, opts)
	if err != nil {
		_ = client.Close() // the first error says why
		return nil, err
	}
	b.owned = append(b.owned, client.Close)
	return b, nil
}

// here looks for plugins with the environment and the files of this process.
func here() pjrt.FindOptions {
	// Without a home directory there is no installer's place to look in.
	cache, _ := os.UserCacheDir()
	return pjrt.FindOptions{Getenv: os.Getenv, GOARCH: runtime.GOARCH, UserCacheDir: cache, Stat: os.Stat}
}

// config is a parsed configuration string.
type config struct {
	kind, path string
	devices    int
	precision  *lowering.Precision
	alias      bool
}

// parseConfig reads a configuration string; see NewFromConfig.
func parseConfig(s string) (config, error) {
	fail := func(format string, args ...any) (config, error) {
		return config{}, &errkind.Fault{Op: "backend: config", Subject: strconv.Quote(s), Reason: fmt.Sprintf(format, args...), Class: errkind.InvalidArgumentError}
	}
	plugin, rest, more := strings.Cut(s, ",")
	c := config{kind: plugin}
	switch {
	case plugin == "":
		c.kind = "cpu"
	case plugin == "cpu" || plugin == "tpu" || plugin == "cuda":
	case filepath.IsAbs(plugin):
		// The kind matters only to the search, which a path ends.
		c.kind, c.path = "cpu", plugin
	default:
		return fail("%q is no plugin: want cpu, tpu, cuda or an absolute path", plugin)
	}
	if !more {
		return c, nil
	}
	seen := map[string]bool{}
	for _, option := range strings.Split(rest, ",") {
		key, value, hasValue := strings.Cut(option, "=")
		if seen[key] {
			return fail("option %q is given twice", key)
		}
		seen[key] = true
		switch key {
		case "devices":
			n, err := strconv.Atoi(value)
			if err != nil || n < 1 {
				return fail("devices wants a number of at least 1, got %q", value)
			}
			if c.kind != "cpu" {
				return fail("devices is an option of the CPU plugin, not of %s", c.kind)
			}
			c.devices = n
		case "precision":
			for _, p := range []lowering.Precision{lowering.PrecisionDefault, lowering.PrecisionHigh, lowering.PrecisionHighest} {
				if strings.EqualFold(p.String(), value) {
					c.precision = &p
				}
			}
			if c.precision == nil {
				return fail("precision wants default, high or highest, got %q", value)
			}
		case "alias":
			if hasValue {
				return fail("alias takes no value, got %q", value)
			}
			c.alias = true
		default:
			return fail("unknown option %q: want devices, precision or alias", key)
		}
	}
	return c, nil
}
