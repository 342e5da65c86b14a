package system

import (
	"path/filepath"
	"strings"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/internal/hostfacts"
)

// ErrNoTPU reports that this machine has no TPU. libtpu was not asked to open one: it would ask the
// metadata server of a cloud for minutes.
var ErrNoTPU = errkind.New(errkind.NotFoundError, "this machine has no TPU: there is no /dev/accel*, no /dev/vfio/* and no PCI device of Google's; "+
	"set CPUDevices to run on CPU devices, use Describe to compile for a slice, or name the Plugin to open it all the same")

// ErrMetadataQuery reports that libtpu was not loaded to describe a slice, because
// [DescribeOptions.KeepEnvironment] leaves the environment as it is: on a machine without a TPU
// libtpu would first ask the metadata server of a cloud for minutes.
var ErrMetadataQuery = errkind.New(errkind.FailedPreconditionError, "libtpu would ask the network for minutes which machine this is, as it has no TPU; "+
	"leave KeepEnvironment unset, or set TPU_SKIP_MDS_QUERY=1, TPU_WORKER_HOSTNAMES=localhost, TPU_WORKER_ID=0")

// HasTPU reports whether this machine shows any sign of a TPU: /dev/accel*, /dev/vfio/* or a PCI
// device of Google's that is neither a disk nor a network card. It reads a few files.
func HasTPU() bool { return thisHost().mayHaveTPU() }

// googlePCI is Google's vendor number on the PCI bus. Its virtual network cards and disks have it
// too, which are told by their class.
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
		if hostfacts.Text(path) == googlePCI && !diskOrNetwork(hostfacts.Text(filepath.Join(filepath.Dir(path), "class"))) {
			return true
		}
	}
	return false
}

// diskOrNetwork says whether a PCI class, such as 0x020000, is that of a disk (01) or a network
// card (02).
func diskOrNetwork(class string) bool {
	return strings.HasPrefix(class, "0x01") || strings.HasPrefix(class, "0x02")
}

// checkPresent refuses a TPU plugin that was found, and not named, on a machine without a TPU.
func (s *starter) checkPresent(host hostFiles) error {
	if s.opts.CPUDevices > 0 || s.opts.Plugin != "" || host.mayHaveTPU() {
		return nil
	}
	return ErrNoTPU
}
