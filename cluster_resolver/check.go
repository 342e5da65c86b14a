package clusterresolver

import (
	"fmt"
	"slices"
	"strings"

	"github.com/tpustrategy/tpustrategy/errkind"
)

// FindingCode identifies the kind of a [Finding]. Codes do not change, so programs can compare them.
type FindingCode string

// The codes of findings.
const (
	// FindingMegascaleStale means that the MEGASCALE_* variables contradict the metadata, for
	// example because a preemption moved the slice. A job with such variables hangs.
	FindingMegascaleStale FindingCode = "megascale-stale"
	// FindingMegascaleUnconfirmed means that MEGASCALE_* variables are set, but the metadata
	// contains no other slice.
	FindingMegascaleUnconfirmed FindingCode = "megascale-unconfirmed"
	// FindingMegascaleIncomplete means that only some of the MEGASCALE_* variables are set.
	FindingMegascaleIncomplete FindingCode = "megascale-incomplete"
	// FindingWorkerCount means that the length of a list of workers contradicts another list, the
	// accelerator type or the process bounds.
	FindingWorkerCount FindingCode = "worker-count"
	// FindingWorkerID means that the index of this worker is out of range or contradicts another source.
	FindingWorkerID FindingCode = "worker-id"
	// FindingWorkerHosts means that the environment and the metadata contain different hosts.
	FindingWorkerHosts FindingCode = "worker-hosts"
	// FindingAcceleratorType means that two sources contain different accelerator types.
	FindingAcceleratorType FindingCode = "accelerator-type"
	// FindingAcceleratorUnknown means that the accelerator type is not in the table of this package.
	FindingAcceleratorUnknown FindingCode = "accelerator-unknown"
	// FindingTopology means that the topology is malformed, or contradicts the accelerator type or
	// another source.
	FindingTopology FindingCode = "topology"
	// FindingVisibleChips means that TPU_VISIBLE_CHIPS contradicts the number of chips per process.
	FindingVisibleChips FindingCode = "visible-chips"
	// FindingPreempted means that this host is being preempted.
	FindingPreempted FindingCode = "preempted"
)

// Severity is the severity of a [Finding].
type Severity int

// The severities of findings. SeverityError is a contradiction between the environment and the
// metadata that makes a job hang or use the wrong slice. SeverityWarning is a contradiction that
// can be intended, or that concerns only properties inferred from the accelerator type.
const (
	SeverityWarning Severity = iota
	SeverityError
)

// String returns "error" or "warning".
func (s Severity) String() string {
	if s == SeverityError {
		return "error"
	}
	return "warning"
}

// MarshalText returns the result of String.
func (s Severity) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// Finding reports a contradiction between the environment and the metadata, or within one of them.
type Finding struct {
	Code     FindingCode `json:"code"`
	Severity Severity    `json:"severity"`
	// Subject is the variable or metadata key, Got its value, and Want the expected value.
	Subject string `json:"subject"`
	Got     string `json:"got"`
	Want    string `json:"want"`
	// Fix is the correction.
	Fix string `json:"do"`
}

// String returns the finding as one line of text.
func (f Finding) String() string {
	return fmt.Sprintf("%s: %s: %s is %s, expected %s; %s", f.Severity, f.Code, f.Subject, f.Got, f.Want, f.Fix)
}

// CheckError reports that a resolver failed because of findings with severity [SeverityError].
type CheckError struct {
	// Resolver is the name of the resolver. Findings has at least one entry.
	Resolver string
	Findings []Finding
}

// Error returns a message with one line for each finding.
func (e *CheckError) Error() string {
	var b strings.Builder
	b.WriteString("clusterresolver: " + e.Resolver + ": environment and metadata disagree")
	for _, f := range e.Findings {
		b.WriteString("\n\t" + f.String())
	}
	return b.String()
}

// Kind returns ValueError.
func (*CheckError) Kind() errkind.Kind { return errkind.ValueError }

// Has reports whether the error contains a finding with this code.
func (e *CheckError) Has(code FindingCode) bool {
	return slices.ContainsFunc(e.Findings, func(f Finding) bool { return f.Code == code })
}

// Check compares the environment with the metadata, and checks the consistency of each of them. The
// order of the findings is fixed. If there is no metadata server, the metadata must be the zero
// value. Check does not use the network.
func Check(env Environment, md Metadata) []Finding {
	c := configChecker{env: env, md: md, hasMetadata: md.isPresent()}
	c.checkAccelerator()
	c.checkWorkers()
	c.checkWorkerID()
	c.checkProcesses()
	c.checkPods()
	c.checkMegascale()
	if md.Preempted {
		c.add(FindingPreempted, SeverityError, "instance/preempted", "TRUE", "FALSE",
			"save a checkpoint and exit; the host stops within seconds")
	}
	return c.findings
}

type configChecker struct {
	env         Environment
	md          Metadata
	hasMetadata bool
	findings    []Finding
}

func (c *configChecker) add(code FindingCode, s Severity, subject string, got, want any, do string) {
	c.findings = append(c.findings, Finding{code, s, subject, truncate(fmt.Sprint(got)), truncate(fmt.Sprint(want)), do})
}

func (c *configChecker) checkAccelerator() {
	env, md := c.env, c.md
	if env.AcceleratorType != "" && md.AcceleratorType != "" && !sameType(env.AcceleratorType, md.AcceleratorType) {
		c.add(FindingAcceleratorType, c.mismatchSeverity(), "TPU_ACCELERATOR_TYPE", env.AcceleratorType, md.AcceleratorType,
			"unset it, or set it to the value in the metadata")
	}
	topology := md.TPUEnv.Get("TOPOLOGY")
	if env.Topology != "" && topology != "" && trimUnitDimension(env.Topology) != trimUnitDimension(topology) {
		c.add(FindingTopology, c.mismatchSeverity(), "TPU_TOPOLOGY", env.Topology, topology,
			"unset it, or set it to the value in the metadata")
	}
	c.checkShape("TPU_ACCELERATOR_TYPE", env.AcceleratorType, "TPU_TOPOLOGY", env.Topology, "TPU_WORKER_HOSTNAMES",
		len(env.Hostnames))
	c.checkShape("accelerator-type", md.AcceleratorType, "TOPOLOGY in tpu-env", topology, "worker-network-endpoints",
		len(md.Endpoints))
}

// trimUnitDimension removes the third size of a topology if it is 1, so that "4x4x1" becomes "4x4".
func trimUnitDimension(topology string) string {
	if strings.Count(topology, "x") == 2 {
		return strings.TrimSuffix(topology, "x1")
	}
	return topology
}

// mismatchSeverity returns the severity of a difference between the environment and the metadata.
// It is SeverityWarning if the process bounds or the host name "localhost" restrict the environment
// to a part of the slice, and SeverityError otherwise.
func (c *configChecker) mismatchSeverity() Severity {
	hosts, all := c.env.Hostnames, len(c.md.Endpoints)
	fewer := len(hosts) > 0 && len(hosts) < all
	if c.env.isSingleProcess() && all > 1 ||
		fewer && (c.env.ProcessBounds.hasSize(len(hosts)) || len(hosts) == 1 && hosts[0] == "localhost") {
		return SeverityWarning
	}
	return SeverityError
}

// checkShape checks that the accelerator type, the topology and the number of hosts from one source
// are consistent. The remaining arguments are the names of these three values in findings.
func (c *configChecker) checkShape(typeName, typ, topoName, topology, hostsName string, hosts int) {
	chips := 0
	if topology != "" {
		n, err := parseTopology(topoName, topology)
		if err != nil {
			c.add(FindingTopology, SeverityWarning, topoName, fmt.Sprintf("%q", topology), `such as "4x4" or "2x2x1"`,
				"correct it")
		}
		chips = n
	}
	if typ == "" {
		return
	}
	a, err := parseAccelerator(typeName, typ)
	if err != nil {
		c.add(FindingAcceleratorUnknown, SeverityWarning, typeName, typ, `a known type such as "v4-32"`,
			"check the spelling; worker counts are not verified")
		return
	}
	if chips != 0 && chips != a.chips {
		c.add(FindingTopology, SeverityWarning, topoName, fmt.Sprintf("%s (%d chips)", topology, chips),
			fmt.Sprintf("%d chips for %s", a.chips, typ), "correct the wrong value")
	}
	if hosts != 0 && (hosts < a.minHosts || hosts > a.maxHosts) {
		c.add(FindingWorkerCount, SeverityWarning, hostsName, fmt.Sprintf("%d workers", hosts),
			fmt.Sprintf("%s for %s", formatHostRange(a), typ),
			"if a worker is missing or the list belongs to another slice, set it to the workers of the running slice")
	}
}

func formatHostRange(a sliceInfo) string {
	if a.minHosts == a.maxHosts {
		return fmt.Sprint(a.minHosts)
	}
	return fmt.Sprintf("%d to %d", a.minHosts, a.maxHosts)
}

// sameType reports whether two accelerator types are equal. It treats aliases such as "v5e-16" and
// "v5litepod-16" as equal.
func sameType(a, b string) bool {
	x, errX := parseAccelerator("", a)
	y, errY := parseAccelerator("", b)
	return a == b || (errX == nil && errY == nil && x == y)
}

func (c *configChecker) checkWorkers() {
	env, md := c.env, c.md
	if len(env.Hostnames) == 0 || len(md.Endpoints) == 0 {
		return
	}
	if len(env.Hostnames) != len(md.Endpoints) {
		c.add(FindingWorkerCount, c.mismatchSeverity(), "TPU_WORKER_HOSTNAMES", fmt.Sprintf("%d workers", len(env.Hostnames)),
			fmt.Sprintf("%d from worker-network-endpoints", len(md.Endpoints)), "unset it, or list the workers of this slice")
		return
	}
	for i, h := range env.Hostnames {
		// A name and an address cannot be compared without a name server.
		if m := md.Endpoints[i].Host; isIP(h) && isIP(m) && h != m {
			c.add(FindingWorkerHosts, SeverityError, fmt.Sprintf("worker %d in TPU_WORKER_HOSTNAMES", i), h, m,
				"the variable belongs to an earlier slice; unset it")
			return
		}
	}
}

func isIP(s string) bool {
	return s != "" && (strings.Contains(s, ":") ||
		(s[0] >= '0' && s[0] <= '9' && s[len(s)-1] >= '0' && s[len(s)-1] <= '9'))
}

func (c *configChecker) checkWorkerID() {
	env, md := c.env, c.md
	own := SeverityError
	if env.isSingleProcess() {
		own = SeverityWarning // the index may be the index of the host in its slice
	}
	if n := len(env.Hostnames); n > 0 && env.WorkerID >= n {
		c.add(FindingWorkerID, own, "TPU_WORKER_ID", env.WorkerID, fmt.Sprintf("0 to %d", n-1),
			"number the workers from 0 in the order of TPU_WORKER_HOSTNAMES")
	}
	if !c.hasMetadata {
		return
	}
	if n := len(md.Endpoints); n > 0 && md.WorkerID >= n {
		c.add(FindingWorkerID, SeverityError, "agent-worker-number", md.WorkerID, fmt.Sprintf("0 to %d", n-1),
			"the metadata is inconsistent; delete the node and create it again")
	}
	if env.WorkerID >= 0 && md.WorkerID >= 0 && env.WorkerID != md.WorkerID && len(env.Hostnames) == len(md.Endpoints) {
		c.add(FindingWorkerID, own, "TPU_WORKER_ID", env.WorkerID, fmt.Sprintf("%d from agent-worker-number", md.WorkerID),
			"unset it; each host has a different index, so do not copy the variables of one host to all hosts")
	}
	if s := md.TPUEnv.Get("WORKER_ID"); s != "" && md.WorkerID >= 0 && s != fmt.Sprint(md.WorkerID) {
		c.add(FindingWorkerID, SeverityError, "WORKER_ID in tpu-env", s,
			fmt.Sprintf("%d from agent-worker-number", md.WorkerID),
			"the metadata is inconsistent; restart the node")
	}
}

func (c *configChecker) checkProcesses() {
	env := c.env
	processes := len(env.ProcessAddresses)
	if processes > 0 && env.TaskID >= processes {
		c.add(FindingWorkerID, SeverityError, "CLOUD_TPU_TASK_ID", env.TaskID, fmt.Sprintf("0 to %d", processes-1),
			"number the processes from 0 in the order of TPU_PROCESS_ADDRESSES")
	}
	subject := "TPU_PROCESS_ADDRESSES"
	if processes == 0 {
		if processes, subject = len(env.Hostnames), "TPU_WORKER_HOSTNAMES"; processes == 0 {
			processes, subject = len(c.md.Endpoints), "worker-network-endpoints"
		}
	}
	if n := env.ProcessBounds.Size(); n > 0 && processes > 0 && !env.ProcessBounds.hasSize(processes) {
		severity, do := SeverityError,
			"list one address per process in TPU_PROCESS_ADDRESSES and set CLOUD_TPU_TASK_ID, or unset the bounds"
		if env.isSingleProcess() {
			severity, do = SeverityWarning, "this is a job of one process on this host; unset the bounds for a job on all hosts"
		}
		c.add(FindingWorkerCount, severity, subject, fmt.Sprintf("%d processes", processes),
			fmt.Sprintf("%d for TPU_PROCESS_BOUNDS=%s", n, env.ProcessBounds), do)
	}
	if env.isSingleProcess() && len(env.ProcessAddresses) == 0 && env.TaskID > 0 {
		c.add(FindingWorkerID, SeverityError, "CLOUD_TPU_TASK_ID", env.TaskID,
			"0 for TPU_PROCESS_BOUNDS="+env.ProcessBounds.String(), "set both to the same value")
	}
	bounds := boundsOrMetadata(Bounds{}, c.md, "TPU_PROCESS_BOUNDS", "HOST_BOUNDS")
	if n := len(c.md.Endpoints); n > 0 && bounds != (Bounds{}) && !bounds.hasSize(n) {
		c.add(FindingWorkerCount, SeverityError, "worker-network-endpoints", fmt.Sprintf("%d workers", n),
			fmt.Sprintf("%d for the process bounds %s in tpu-env", bounds.Size(), bounds),
			"the metadata is inconsistent; wait until the node is READY")
	}
	chips, visible := env.ChipsPerProcess, len(env.VisibleChips)
	if chips == (Bounds{}) || env.VisibleChips == nil || chips.hasSize(visible) {
		return
	}
	name, severity := "TPU_CHIPS_PER_PROCESS_BOUNDS", SeverityError
	if env.chipsPerHost {
		// A process can use fewer chips than its host has.
		name = "TPU_CHIPS_PER_HOST_BOUNDS"
		if visible < chips.chipCount() {
			severity = SeverityWarning
		}
	}
	c.add(FindingVisibleChips, severity, "TPU_VISIBLE_CHIPS", fmt.Sprintf("%d chips", visible),
		fmt.Sprintf("%d for %s=%s", chips.chipCount(), name, chips), "set both to the same value")
}

func (c *configChecker) checkMegascale() {
	m := c.env.Megascale
	if !m.IsSet() {
		return
	}
	if !m.isComplete() {
		var missing []string
		for _, v := range []struct {
			name string
			set  bool
		}{
			{"MEGASCALE_COORDINATOR_ADDRESS", m.Coordinator != ""},
			{"MEGASCALE_NUM_SLICES", m.NumSlices > 0},
			{"MEGASCALE_SLICE_ID", m.SliceID >= 0},
		} {
			if !v.set {
				missing = append(missing, v.name)
			}
		}
		c.add(FindingMegascaleIncomplete, SeverityError, "MEGASCALE_*", "without "+strings.Join(missing, ", "),
			"all of them or none",
			"set the missing variables, or unset all of them for a job with one slice")
	}
	if m.NumSlices > 0 && m.SliceID >= m.NumSlices {
		c.add(FindingMegascaleStale, SeverityError, "MEGASCALE_SLICE_ID", m.SliceID, fmt.Sprintf("0 to %d", m.NumSlices-1),
			"set MEGASCALE_* to the values of the running slices")
	}
	if !c.hasMetadata || c.md.TPUEnv.Len() == 0 {
		return
	}
	metadata, errs := parseMegascale(c.md.TPUEnv.Get)
	if len(errs) > 0 || !metadata.IsSet() {
		if m.NumSlices != 1 || m.Coordinator != "" {
			c.add(FindingMegascaleUnconfirmed, SeverityWarning, "MEGASCALE_*", "set", "unset: the metadata contains one slice",
				"if this job has one slice, unset them; variables of an earlier job make the start wait for slices that no "+
					"longer exist")
		}
		return
	}
	const do = "unset it, or set it to the value in the metadata; it belongs to earlier slices"
	if metadata.NumSlices > 0 && m.NumSlices > 0 && metadata.NumSlices != m.NumSlices {
		c.add(FindingMegascaleStale, SeverityError, "MEGASCALE_NUM_SLICES", m.NumSlices, metadata.NumSlices, do)
	}
	if metadata.SliceID >= 0 && m.SliceID >= 0 && metadata.SliceID != m.SliceID {
		c.add(FindingMegascaleStale, SeverityError, "MEGASCALE_SLICE_ID", m.SliceID, metadata.SliceID, do)
	}
	if metadata.Coordinator != "" && m.Coordinator != "" && metadata.Coordinator != m.Coordinator {
		c.add(FindingMegascaleStale, SeverityError, "MEGASCALE_COORDINATOR_ADDRESS", m.Coordinator, metadata.Coordinator, do)
	}
}
