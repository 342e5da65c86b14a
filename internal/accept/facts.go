package accept

import (
	"context"
	"fmt"
	"maps"
	"os"
	"runtime"
	"slices"
	"strings"

	"github.com/tpustrategy/tpustrategy/internal/command"
	"github.com/tpustrategy/tpustrategy/internal/hostfacts"
	"github.com/tpustrategy/tpustrategy/internal/units"
)

// Environment lists the environment variables that a report contains. The package reads no other
// variables, so a report contains no secrets.
var Environment = []string{
	"CLOUD_TPU_TASK_ID", "CUDA_VISIBLE_DEVICES", "GODEBUG", "GOGC", "GOMAXPROCS", "GOMEMLIMIT", "JOB_COMPLETION_INDEX",
	"LD_LIBRARY_PATH", "LD_PRELOAD",
	"LIBTPU_INIT_ARGS", "MALLOC_ARENA_MAX", "MEGASCALE_COORDINATOR_ADDRESS", "MEGASCALE_NUM_SLICES", "MEGASCALE_PORT",
	"MEGASCALE_SLICE_ID", "TF_CONFIG",
	"TF_CPP_MIN_LOG_LEVEL", "TPUSTRATEGY_CPU_PLUGIN", "TPUSTRATEGY_CUDA_PLUGIN", "TPUSTRATEGY_TPU_PLUGIN",
	"TPU_ACCELERATOR_TYPE",
	"TPU_CHIPS_PER_HOST_BOUNDS", "TPU_CHIPS_PER_PROCESS_BOUNDS", "TPU_HOST_BOUNDS", "TPU_LIBRARY_PATH", "TPU_LOG_DIR",
	"TPU_MIN_LOG_LEVEL", "TPU_NAME",
	"TPU_PREMAPPED_BUFFER_SIZE", "TPU_PROCESS_ADDRESSES", "TPU_PROCESS_BOUNDS", "TPU_PROCESS_PORT", "TPU_SKIP_MDS_QUERY",
	"TPU_STDERR_LOG_LEVEL",
	"TPU_TOPOLOGY", "TPU_VISIBLE_CHIPS", "TPU_VISIBLE_DEVICES", "TPU_WORKER_HOSTNAMES", "TPU_WORKER_ID", "XLA_FLAGS",
}

// checkVersions records the installed versions and checks that they are equal on all hosts.
func checkVersions(ctx context.Context, w *partRun) error {
	sys := w.system()
	var same strings.Builder // facts that must be equal on all hosts
	tell := func(name, value string) {
		if value != "" {
			w.addFact(name, "%s", value)
			fmt.Fprintf(&same, "%s %s; ", name, value)
		}
	}
	if client := sys.Client(); client != nil {
		plugin := client.Plugin()
		w.addFact("plugin file", "%s (%s)", plugin.Path(), sys.Plugin().Source)
		tell("PJRT API", plugin.APIVersion().String())
		tell("platform", client.PlatformName()+", "+client.PlatformVersion())
		attributes := plugin.Attributes()
		for _, name := range slices.Sorted(maps.Keys(attributes)) {
			w.addFact("attribute "+name, "%v", attributes[name])
		}
		w.addFact("extensions", "%s", strings.Join(plugin.Extensions(), " "))
	} else {
		tell("platform", sys.Platform())
	}
	tell("module", command.Module+" "+command.Version())
	tell("Go", runtime.Version()+" "+runtime.GOOS+"/"+runtime.GOARCH)
	facts := hostfacts.ReadFacts("")
	tell("kernel", facts.Kernel)
	tell("C library", facts.CLibrary)
	return w.session.exchange.CheckSame(ctx, "what is installed", same.String())
}

// readEnvironment records the resolved cluster and the environment variables of this host.
func readEnvironment(_ context.Context, w *partRun) error {
	if cluster, ok := w.system().Cluster(); ok {
		w.addFact("resolver", "%s, %s of %d tasks", cluster.Source, cluster.Task, cluster.Spec.Len())
		w.addFact("slice", "type %q, topology %q, name %q, zone %q, hosts %v", cluster.TPU.AcceleratorType,
			cluster.TPU.Topology, cluster.TPU.Name, cluster.TPU.Zone, cluster.TPU.Hosts)
		if cluster.TPU.Multislice.NumSlices > 1 {
			w.addFact("slices", "%+v", cluster.TPU.Multislice)
		}
		for _, f := range cluster.Findings {
			w.addFinding("%s", f)
		}
	} else {
		w.addFact("resolver", "none was asked")
	}
	for _, name := range Environment {
		if value := w.session.opts.Getenv(name); value != "" {
			w.addFact(name, "%s", value)
		}
	}
	w.addFact("host", "%s, %d processors", hostName(), runtime.NumCPU())
	facts := hostfacts.ReadFacts("")
	w.addFact("memory", "%s, %s of it free", units.Bytes(facts.MemoryBytes), units.Bytes(facts.AvailableBytes))
	w.addFact("transparent huge pages", "%s", facts.HugePages)
	w.addFact("locked memory", "%s", facts.LockedMemory)
	if w.system().Platform() == "tpu" {
		for _, f := range facts.Findings() {
			w.addFinding("%s", f.String())
		}
	}
	return nil
}

func hostName() string {
	name, err := os.Hostname()
	if err != nil {
		return "without a name"
	}
	return name
}
