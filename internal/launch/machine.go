package launch

import (
	"slices"

	"github.com/tpustrategy/tpustrategy/tpu"
)

// Service is a service of Google Cloud that provides machines with TPUs.
type Service string

// The places.
const (
	// TPUVM is a node of the Cloud TPU API: gcloud compute tpus tpu-vm.
	TPUVM Service = "tpu-vm"
	// Queued is a queued resource of the Cloud TPU API, which waits for machines: one node or
	// several slices.
	Queued Service = "queued"
	// GCE is one instance of Compute Engine.
	GCE Service = "gce"
	// MIG is a managed instance group of Compute Engine: a slice of several machines.
	MIG Service = "mig"
	// GKE is a node pool of Google Kubernetes Engine for each slice, with a Job or a JobSet.
	GKE Service = "gke"
)

// Services returns all services, in the order of the documentation.
func Services() []Service { return []Service{TPUVM, Queued, GCE, MIG, GKE} }

// Machines describes the machines of a TPU generation. A field is empty if the service does not
// offer the generation.
type Machines struct {
	// Generation is the name in topologies, such as v5e.
	Generation string
	// Runtime is the runtime version of the Cloud TPU API.
	Runtime string
	// ImageFamily is the family of images for Compute Engine, in the project [ImageProject].
	ImageFamily string
	// Type is the machine type of Compute Engine and GKE, with %d for the number of chips. Chips
	// are the possible numbers of chips of a machine.
	Type  string
	Chips []int
	// Accelerator is the label cloud.google.com/gke-tpu-accelerator.
	Accelerator string
	// CLibrary is the version of the GNU C library in the oldest image. A program must not require
	// a newer one.
	CLibrary string
}

// ImageProject is the Google Cloud project of the TPU images.
const ImageProject = "ubuntu-os-accelerator-images"

// AllMachines returns the table, oldest generation first.
//
// Sources, read in November 2026: runtime versions, "TPU software versions",
// cloud.google.com/tpu/docs/runtimes; that the Cloud TPU API does not make TPU7x, "Create Cloud TPU
// VMs", docs.cloud.google.com/tpu/docs/create-tpu-vm; that Compute Engine makes v5p, v6e and TPU7x,
// "TPU machines", docs.cloud.google.com/compute/docs/tpus/tpu-machines; image families, "TPU OS
// images", docs.cloud.google.com/tpu/docs/tpu-os-images, and skypilot-org/skypilot, sky/clouds/
// gcp.py; machine types and labels of GKE, "Plan TPUs in GKE", docs.cloud.google.com/
// kubernetes-engine/docs/concepts/plan-tpus, and AI-Hypercomputer/xpk, in
// core/system_characteristics.py. The images are Ubuntu 22.04 (C library 2.35) and, for TPU7x, 24.04 (2.39).
func AllMachines() []Machines {
	const ubuntu22 = "ubuntu-accel-2204-amd64-tpu-v5e-v5p-v6e"
	return []Machines{
		{Generation: "v2", Runtime: "tpu-ubuntu2204-base", CLibrary: "2.35"},
		{Generation: "v3", Runtime: "tpu-ubuntu2204-base", CLibrary: "2.35"},
		{Generation: "v4", Runtime: "tpu-ubuntu2204-base", Type: "ct4p-hightpu-%dt", Chips: []int{4}, Accelerator: "tpu-v4-podslice", CLibrary: "2.35"},
		{Generation: "v5e", Runtime: "v2-alpha-tpuv5-lite", Type: "ct5lp-hightpu-%dt", Chips: []int{1, 4, 8}, Accelerator: "tpu-v5-lite-podslice", CLibrary: "2.35"},
		{Generation: "v5p", Runtime: "v2-alpha-tpuv5", ImageFamily: ubuntu22, Type: "ct5p-hightpu-%dt", Chips: []int{1, 2, 4}, Accelerator: "tpu-v5p-slice", CLibrary: "2.35"},
		{Generation: "v6e", Runtime: "v2-alpha-tpuv6e", ImageFamily: ubuntu22, Type: "ct6e-standard-%dt", Chips: []int{1, 4, 8}, Accelerator: "tpu-v6e-slice", CLibrary: "2.35"},
		{Generation: "tpu7x", ImageFamily: "ubuntu-accel-2404-amd64-tpu-tpu7x", Type: "tpu7x-standard-%dt", Chips: []int{1, 4}, Accelerator: "tpu7x", CLibrary: "2.39"},
	}
}

// MachinesFor returns the entry of a generation, by its name in topologies.
func MachinesFor(generation string) (Machines, bool) {
	all := AllMachines()
	i := slices.IndexFunc(all, func(m Machines) bool { return m.Generation == generation })
	if i < 0 {
		return Machines{}, false
	}
	return all[i], true
}

// isOffered reports whether a service offers the generation.
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

// services returns the services that offer the generation.
func (m Machines) services() []Service {
	return slices.DeleteFunc(Services(), func(p Service) bool { return !m.isOffered(p) })
}

func chipsPerHost(a tpu.Accelerator) int { return a.Chips() / a.Hosts() }
