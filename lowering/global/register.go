package global

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/gomlx/compute"

	"github.com/tpustrategy/tpustrategy/tpu/system"
)

// Register offers backends to GoMLX under name, so that compute.NewWithConfig("name:config"), or
// the GOMLX_BACKEND variable set to it, makes one. Registering a name again replaces it.
//
// Register changes a table of package compute that has no lock: call it before backends are made.
func Register(name string) {
	compute.Register(name, func(config string) (compute.Backend, error) {
		b, err := NewFromConfig(context.Background(), config, Options{Name: name})
		if err != nil {
			return nil, err
		}
		return b, nil
	})
}

// NewFromConfig opens devices for a backend, which closes them with itself. The config is
// "devices=8,logical=2": so many devices of the CPU plugin, of which so many make a replica. Without
// devices it is the TPU of this machine.
func NewFromConfig(ctx context.Context, config string, opts Options) (*Backend, error) {
	var open system.Options
	for _, option := range strings.Split(config, ",") {
		key, value, _ := strings.Cut(option, "=")
		n, err := strconv.Atoi(value)
		switch {
		case option == "":
		case err != nil || n < 1:
			return nil, fault("config "+strconv.Quote(config), fmt.Sprintf("%s wants a number of at least 1, got %q", key, value), "")
		case key == "devices":
			open.CPUDevices = n
		case key == "logical":
			opts.Logical = n
		default:
			return nil, fault("config "+strconv.Quote(config), fmt.Sprintf("%q is no option", key), "give devices and logical")
		}
	}
	sys, err := system.Open(ctx, open)
	if err != nil {
		return nil, failed("config", strconv.Quote(config), err)
	}
	b, err := New(sys, opts)
	if err != nil {
		_ = sys.Close() // the first error says why
		return nil, err
	}
	b.owned = append(b.owned, sys.Close)
	return b, nil
}
