package system

import (
	"path/filepath"
	"strings"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/internal/hostfacts"
)

// ErrNoTPU reports that this host has no TPU. Open does not load libtpu in this case, because
// libtpu would query the cloud's metadata server for minutes.
var ErrNoTPU = errkind.New(errkind.NotFoundError,
	"this host has no TPU: there is no /dev/accel*, no /dev/vfio/* and no Google PCI device; "+
		"set CPUDevices to run on CPU devices, use Describe to compile for a slice, or set Plugin to open it anyway")

// ErrMetadataQuery reports that [Describe] did not load libtpu, because
// [DescribeOptions.KeepEnvironment] is set and the host has no TPU. libtpu would query the cloud's
// metadata server for minutes.
var ErrMetadataQuery = errkind.New(errkind.FailedPreconditionError,
	"libtpu would query the metadata server for minutes because this host has no TPU; "+
		"do not set KeepEnvironment, or set TPU_SKIP_MDS_QUERY=1, TPU_WORKER_HOSTNAMES=localhost, TPU_WORKER_ID=0")

// HasTPU reports whether this host seems to have a TPU. It searches for /dev/accel*, /dev/vfio/*,
// and Google PCI devices that are neither a disk nor a network card. It reads a few files.
func HasTPU() bool { return localHost().hasTPU() }

// googlePCI is Google's PCI vendor id. Google's virtual network cards and disks have the same
// vendor id but another class.
const googlePCI = "0x1ae0"

func (h hostPaths) hasTPU() bool {
	for _, pattern := range []string{"accel*", "vfio/[^v]*"} { // excludes /dev/vfio/vfio, which belongs to the driver
		if found, _ := filepath.Glob(filepath.Join(h.dev, pattern)); len(found) > 0 {
			return true
		}
	}
	vendors, _ := filepath.Glob(filepath.Join(h.pci, "*", "vendor"))
	for _, path := range vendors {
		if hostfacts.ReadText(path) == googlePCI && !isDiskOrNetwork(hostfacts.ReadText(filepath.Join(filepath.Dir(path),
			"class"))) {
			return true
		}
	}
	return false
}

// isDiskOrNetwork reports whether a PCI class such as 0x020000 is a disk (01) or a network card (02).
func isDiskOrNetwork(class string) bool {
	return strings.HasPrefix(class, "0x01") || strings.HasPrefix(class, "0x02")
}

// checkTPUPresent returns ErrNoTPU if the host has no TPU. If Options.Plugin is set, it returns nil.
func (s *starter) checkTPUPresent(host hostPaths) error {
	if s.opts.CPUDevices > 0 || s.opts.Plugin != "" || host.hasTPU() {
		return nil
	}
	return ErrNoTPU
}
