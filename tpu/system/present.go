package system

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
)

// ErrNoTPU is that this machine has no TPU, so that libtpu was not asked to open
// one: it would ask the metadata server of a cloud for minutes.
var ErrNoTPU = errors.New("this machine has no TPU: there is no /dev/accel*, no /dev/vfio/* and no PCI device of Google's; " +
	"set CPUDevices to run on CPU devices, use Describe to compile for a slice, or name the Plugin to open it all the same")

// ErrMetadataQuery is that libtpu was not loaded to describe a slice: on a machine
// without a TPU it would first ask the metadata server of a cloud for minutes.
var ErrMetadataQuery = errors.New("libtpu would ask the network for minutes which machine this is, as it has no TPU; " +
	"set TPU_SKIP_MDS_QUERY=1, TPU_ACCELERATOR_TYPE=v5litepod-8, TPU_WORKER_HOSTNAMES=localhost and TPU_WORKER_ID=0 in the environment, " +
	"also with os.Setenv before libtpu is loaded, or name the Plugin to load it all the same")

// googlePCI is Google's vendor number on the PCI bus. Its virtual network cards
// have it too: a machine with it may have a TPU.
const googlePCI = "0x1ae0"

// mayHaveTPU says whether the machine shows any sign of a TPU.
func (h hostFiles) mayHaveTPU() bool {
	for _, pattern := range []string{"accel*", "vfio/[^v]*"} { // all but /dev/vfio/vfio, which is the driver's
		if found, _ := filepath.Glob(filepath.Join(h.dev, pattern)); len(found) > 0 {
			return true
		}
	}
	vendors, _ := filepath.Glob(filepath.Join(h.pci, "*", "vendor"))
	for _, path := range vendors {
		if text, err := os.ReadFile(path); err == nil && strings.TrimSpace(string(text)) == googlePCI {
			return true
		}
	}
	return false
}

// checkPresent refuses a TPU plugin that was found, and not named, on a machine
// without a TPU.
func (s *starter) checkPresent(host hostFiles) error {
	if s.opts.CPUDevices > 0 || s.opts.Plugin != "" || host.mayHaveTPU() {
		return nil
	}
	return ErrNoTPU
}

// checkQuery refuses to have a TPU plugin that was found, and not named, look for
// the machine's TPU in the network.
func (o DescribeOptions) checkQuery(host hostFiles) error {
	getenv := o.Getenv
	if getenv == nil {
		getenv = os.Getenv
	}
	if o.Plugin != "" || getenv("TPU_SKIP_MDS_QUERY") != "" || host.mayHaveTPU() {
		return nil
	}
	return ErrMetadataQuery
}
