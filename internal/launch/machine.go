package launch

import (
	"slices"

	"github.com/tpustrategy/tpustrategy/tpu"
)

// Service is a service of Google Cloud that provides machines with TPUs.
type Service string

// The places.
const (
	// TPUVM is a TPU VM of the Cloud TPU API, created with gcloud compute tpus tpu-vm.
	TPUVM Service = "tpu-vm"
	// Queued is a queued resource of the Cloud TPU API. It waits until its slices are available.
	Queued Service = "queued"
	// GCE is a single Compute Engine instance.
	GCE Service = "gce"
	// MIG is a managed instance group of Compute Engine, for a slice of several machines.
	MIG Service = "mig"
	// GKE is Google Kubernetes Engine, with a node pool for each slice and a Job or a JobSet.
	GKE Service = "gke"
)

// Services returns all services.
func Services() []Service { return []Service{TPUVM, Queued, GCE, MIG, GKE} }

// Machines describes the machines of a TPU generation. A field is empty if the corresponding
// service does not offer the generation.
type Machines struct {
	// Generation is the name of the TPU generation, such as v5e.
	Generation string
	// Runtime is the TPU software version for the Cloud TPU API.
	Runtime string
	// ImageFamily is the Compute Engine image family in the project [ImageProject].
	ImageFamily string
	// Type is the machine type for Compute Engine and GKE, a format string with %d for the number
	// of chips. Chips lists the possible numbers of chips per machine.
	Type  string
	Chips []int
	// Accelerator is the value of the node label cloud.google.com/gke-tpu-accelerator.
	Accelerator string
	// CLibrary is the GNU C library version of the oldest image, the newest that a program may require.
	CLibrary string
}

// ImageProject is the Google Cloud project that contains the TPU images.
const ImageProject = "ubuntu-os-accelerator-images"

// AllMachines returns the machines of all TPU generations, the oldest generation first.
//
// Sources, read in November 2026. Runtime versions: "TPU software versions",
// cloud.google.com/tpu/docs/runtimes. No TPU7x in the Cloud TPU API: "Create Cloud TPU VMs",
// docs.cloud.google.com/tpu/docs/create-tpu-vm. v5p, v6e and TPU7x in Compute Engine: "TPU
// machines", docs.cloud.google.com/compute/docs/tpus/tpu-machines. Image families: "TPU OS images",
// docs.cloud.google.com/tpu/docs/tpu-os-images, and skypilot-org/skypilot, sky/clouds/gcp.py.
// Machine types and labels of GKE: "Plan TPUs in GKE",
// docs.cloud.google.com/kubernetes-engine/docs/concepts/plan-tpus, and AI-Hypercomputer/xpk,
// core/system_characteristics.py. The images are Ubuntu 22.04 (C library 2.35) and, for TPU7x,
// 24.04 (2.39).
func AllMachines() []Machines {
	const ubuntu22 = "ubuntu-accel-2204-amd64-tpu-v5e-v5p-v6e"
	return []Machines{
		{Generation: "v2", Runtime: "tpu-ubuntu2204-base", CLibrary: "2.35"},
		{Generation: "v3", Runtime: "tpu-ubuntu2204-base", CLibrary: "2.35"},
		{Generation: "v4", Runtime: "tpu-ubuntu2204-base", Type: "ct4p-hightpu-%dt", Chips: []int{4},
			Accelerator: "tpu-v4-podslice", CLibrary: "2.35"},
		{Generation: "v5e", Runtime: "v2-alpha-tpuv5-lite", Type: "ct5lp-hightpu-%dt", Chips: []int{1, 4, 8},
			Accelerator: "tpu-v5-lite-podslice", CLibrary: "2.35"},
		{Generation: "v5p", Runtime: "v2-alpha-tpuv5", ImageFamily: ubuntu22, Type: "ct5p-hightpu-%dt", Chips: []int{1, 2, 4},
			Accelerator: "tpu-v5p-slice", CLibrary: "2.35"},
		{Generation: "v6e", Runtime: "v2-alpha-tpuv6e", ImageFamily: ubuntu22, Type: "ct6e-standard-%dt",
			Chips: []int{1, 4, 8}, Accelerator: "tpu-v6e-slice", CLibrary: "2.35"},
		{Generation: "tpu7x", ImageFamily: "ubuntu-accel-2404-amd64-tpu-tpu7x", Type: "tpu7x-standard-%dt",
			Chips: []int{1, 4}, Accelerator: "tpu7x", CLibrary: "2.39"},
	}
}

// MachinesFor returns the machines of the TPU generation with a name such as "v5e".
func MachinesFor(generation string) (Machines, bool) {
	all := AllMachines()
	i := slices.IndexFunc(all, func(m Machines) bool { return m.Generation == generation })
	if i < 0 {
		return Machines{}, false
	}
	return all[i], true
}

// isOffered reports whether a service offers machines of this TPU generation.
func (m Machines) isOffered(p Service) bool {
	switch p {
	case TPUVM, Queued:
		return m.Runtime != ""
	case GCE, MIG:
		return m.ImageFamily != ""
	case GKE:
		return m.Accelerator != ""
	}
	return false
}

func (m Machines) availableServices() []Service {
	return slices.DeleteFunc(Services(), func(p Service) bool { return !m.isOffered(p) })
}

func chipsPerHost(a tpu.Accelerator) int { return a.Chips() / a.Hosts() }
