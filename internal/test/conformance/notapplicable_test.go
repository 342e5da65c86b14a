package conformance

import (
	"regexp"
	"strings"

	"github.com/tpustrategy/tpustrategy/internal/test/conformance/valuecases"
)

// exception describes cases, or fields of cases, that do not apply to this module.
type exception struct {
	form, section, name string // name is a regular expression
	// field is a path in the outputs. If empty, the exception applies to the whole case.
	field  string
	reason string
}

// exceptions lists all exceptions.
var exceptions = []exception{
	// Inputs that can be written only in Python.
	{"strategy_semantics", "reduce", "axis not an int", "", "an axis is an int: another type does not compile"},
	{"strategy_semantics", "context", "copy.copy", "",
		"copying a strategy by copy.copy is Python's; a *TPUStrategy is a pointer"},
	{"strategy_semantics", "context", "left while a variable_creator_scope", "",
		"scopes are values of a context.Context, there is no stack to leave in the wrong order"},
	{"strategy_semantics", "context", "experimental_set_strategy inside a scope", "",
		"there is no strategy of the process to set"},
	{"strategy_semantics", "variable", "deepcopy", "", "deepcopy is Python's"},
	{"strategy_semantics", "tpu_run", ".*", "",
		"which Python callables can be traced; here a step is a StepFunc and its arguments are variadic, by their types"},
	{"strategy_semantics", "per_replica", ".*(convert|conversion|flatten|spec|\\+).*", "",
		"conversions and operators of Python: a *PerReplica does not compile where a tensor belongs"},
	{"strategy_semantics", "mirrored_write", "python 0 with SUM", "",
		"a crash inside TensorFlow on a Python zero; ours refuses it as any other number"},
	{"strategy_semantics", "(gather|all_gather)", "IndexedSlices", "", "there are no sparse values"},
	{"strategy_semantics", "(variable|mirrored_write)", ".*handle.*", "",
		"a resource handle is TensorFlow's; a variable is a Go object"},
	{"strategy_semantics", "base", ".*(abstract|StrategyExtended|base class|descendant).*", "",
		"there is no abstract class: a missing method does not compile"},

	{"strategy_semantics", "sync_on_read", "variable_sync_on_read_context", "read_value_inside",
		"reading across replicas is a call of its own, not a mode of another"},
	{"strategy_semantics", "tpu_variable", ".*", "type", "the name of a Python class"},
	{"strategy_semantics", "tpu_variable", ".*", "component_type", "the name of a Python class"},
	{"strategy_semantics", "tpu_variable", ".*", "on_read_type", "the name of a Python class"},
	{"strategy_semantics", "tpu_variable", ".*", "component_names",
		"components have no names of their own on logical devices"},
	{"strategy_semantics", "tpu_variable", ".*", "inner_names",
		"components have no names of their own on logical devices"},
	{"strategy_semantics", "tpu_variable", ".*", "no_initial_name", "a variable without a name is called Variable"},
	{"strategy_semantics", "cluster_resolver",
		".*(device dict and core count|TPUSystemMetadata from a device list.*|master_job).*", "",
		"helpers over TensorFlow's own device and job names; devices come from the PJRT client here"},

	{"sharding", ".*", ".*not (an )?(ndarray|ndarrays|a list|list).*", "", "a tile assignment is numbers by its type"},
	{"sharding", ".*", "split_to_logical_devices \\[\\] shape=\\[\\] logical_devices=1.*", "",
		"a crash inside TensorFlow on an empty list; a scalar on one logical device is whole"},
	{"sharding", ".*", "split_to_logical_devices: \\[\\] of \\[\\] over 1( .*)?", "",
		"a crash inside TensorFlow on an empty list; a scalar on one logical device is whole"},
	{"sharding", ".*", "mesh .*: \\[\\] manual (None|\\[\\])", "",
		"a crash inside TensorFlow on an empty list; a scalar on a mesh is whole"},
	{"sharding", ".*", "partial_tile \\[\\] of .*", "",
		"there is no last dimension for the copies; TensorFlow writes it and XLA drops it"},
	{"sharding", ".*", "subgroup_tile modes not list", "", "modes are variadic: another type does not compile"},

	// Objects that are global in a Python process.
	{"strategy_semantics", "default", ".*", "second_instance", "there is no strategy of the process"},
	{"strategy_semantics", "default", ".*", "non_slot", "names a variable of TensorFlow 1's graph"},
	{"strategy_semantics", "default", ".*", "worker_devices", "one replica has a device here"},
	{"strategy_semantics", "default", ".*", "parameter_devices", "one replica has a device here"},
	{"strategy_semantics", "default", ".*", "broadcast", "an unwritten method there (\"TODO\")"},
	{"strategy_semantics", "base", ".*", "tpu_hardware_feature", "a protocol buffer of TensorFlow's device"},
	{"strategy_semantics", "base", ".*", "duplicate_devices",
		"devices come from a DeviceAssignment, which has its own cases"},
	{"strategy_semantics", "base", ".*", "has_logical_device_methods",
		"annotations are package logical's, for every strategy"},
	{"strategy_semantics", "replica_context", ".*", "str_id", "replica contexts have no constructor"},
	{"strategy_semantics", "replica_context", ".*", "none_id", "replica contexts have no constructor"},
}

// notApplicable returns the reason why a case, or one of its fields, does not apply.
func notApplicable(form, section, name, field string) (string, bool) {
	for _, e := range exceptions {
		if e.form != form || e.field != field {
			continue
		}
		if matches(e.section, section) && strings.Contains(name, e.name) || matches(e.section, section) &&
			matches(e.name, name) {
			return e.reason, true
		}
	}
	return "", false
}

func matches(pattern, text string) bool {
	ok, err := regexp.MatchString("^(?:"+pattern+")$", text)
	return err == nil && ok
}

// valueReasons contains the reasons of cases that do not require devices.
var valueReasons = map[valuecases.Why]string{
	valuecases.AssignSPMD:   reasonAssignSPMD,
	valuecases.NotNumbers:   "a shape that is not a list of numbers does not compile",
	valuecases.NotTopology:  "another type than a topology does not compile",
	valuecases.OtherRank:    "coordinates of another rank do not compile",
	valuecases.Negative:     reasonNegative,
	valuecases.Repeated:     "two devices of one place are refused here; TensorFlow forgets the first",
	valuecases.Unreduced:    "XLA has subgroups of parts of a sum; TensorFlow refuses them",
	valuecases.NoShardingOp: "unspecified dimensions are of an op of TensorFlow's graphs",
}

// Reasons of cases in the other files, selected by the contents of the case.
const (
	reasonAssignSPMD = "TensorFlow cannot assign a tensor to a logical device under SPMD partitioning; here it can be"
	reasonNegative   = "a negative coordinate counts from the end of NumPy's arrays there; here it is outside the mesh"
	reasonArguments  = "arguments are variadic: another type does not compile"
	reasonStaticRank = "the rank of a tensor is always known"
	reasonMergeAxis  = "TensorFlow cannot reduce along an axis in a traced merge call, which would nest computations; " +
		"here it can"
	reasonMergeBranch = "a merge call in a branch or a loop is refused in every step, as MirroredStrategy does; " +
		"TensorFlow's TPU trace does not notice"
	reasonMergeValue  = "a merge function takes and returns values of the step: a Python number does not compile"
	reasonScatterSPMD = "TensorFlow has no scatter of a variable that is split for SPMD partitioning; here it is as " +
		"any other"
	reasonWriteBranch = "a step writes a variable outside its branches and loops, with what they return"
	reasonTPUs        = "a resolver has one TPU: a list of them does not compile"
	reasonSparse      = "there are no sparse values"
	reasonLocal       = "in a step a replica's tensor is a node: there is nothing to take apart"
	reasonZero        = "a crash inside TensorFlow on a Python zero; ours takes it as any other number"
	reasonMergeTrace  = "TensorFlow traces a merge call on TPUs with one symbolic tensor, so that the documented " +
		"joining does not happen; here it does"
)
