package clusterresolver

import (
	"fmt"
	"slices"
	"strings"

	"github.com/tpustrategy/tpustrategy/errkind"
)

// FindingCode names a kind of [Finding]. Programs may match codes: they do not change.
type FindingCode string

// The codes of findings.
const (
	// FindingMegascaleStale says that the MEGASCALE_* variables contradict the metadata, as after a
	// pre-emption that moved the slice. A job that starts with such variables hangs.
	FindingMegascaleStale FindingCode = "megascale-stale"
	// FindingMegascaleUnconfirmed says that the metadata knows of no other slice.
	FindingMegascaleUnconfirmed FindingCode = "megascale-unconfirmed"
	// FindingMegascaleIncomplete says that some MEGASCALE_* variables are set and others are not.
	FindingMegascaleIncomplete FindingCode = "megascale-incomplete"
	// FindingWorkerCount says that the length of a list of workers disagrees with another list,
	// with the accelerator type or with the process bounds.
	FindingWorkerCount FindingCode = "worker-count"
	// FindingWorkerID says that this worker's number is out of range or in doubt.
	FindingWorkerID FindingCode = "worker-id"
	// FindingWorkerHosts says that the environment names other hosts than the metadata.
	FindingWorkerHosts FindingCode = "worker-hosts"
	// FindingAcceleratorType says that two sources name different accelerators.
	FindingAcceleratorType FindingCode = "accelerator-type"
	// FindingAcceleratorUnknown says that this package does not know the sizes of the accelerator
	// type.
	FindingAcceleratorUnknown FindingCode = "accelerator-unknown"
	// FindingTopology says that the topology does not fit the accelerator type.
	FindingTopology FindingCode = "topology"
	// FindingVisibleChips says that TPU_VISIBLE_CHIPS does not fit the chips per process.
	FindingVisibleChips FindingCode = "visible-chips"
	// FindingPreempted says that this machine is being taken away.
	FindingPreempted FindingCode = "preempted"
)

// Severity grades a [Finding].
type Severity int

// The severities. An error is a contradiction between facts of the environment and of the metadata:
// a job that starts in spite of it hangs, or computes on the wrong slice. A warning may be
// intended, or contradicts only what this package infers from a table of accelerators.
const (
	SeverityWarning Severity = iota
	SeverityError
)

func (s Severity) String() string {
	if s == SeverityError {
		return "error"
	}
	return "warning"
}

// MarshalText writes the name.
func (s Severity) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// Finding reports one contradiction between the environment and the metadata, or within the
// environment or the metadata.
type Finding struct {
	Code     FindingCode `json:"code"`
	Severity Severity    `json:"severity"`
	// Subject is the variable or the key in question, Got its value, and Want the value that the
	// other source gives.
	Subject string `json:"subject"`
	Got     string `json:"got"`
	Want    string `json:"want"`
	// Do says what to do about it.
	Do string `json:"do"`
}

func (f Finding) String() string {
	return fmt.Sprintf("%s: %s: %s is %s, expected %s; %s", f.Severity, f.Code, f.Subject, f.Got, f.Want, f.Do)
}

// CheckError reports the findings of severity [SeverityError] because of which a resolver returned
// no cluster.
type CheckError struct {
	// Resolver is the resolver's name; Findings has at least one entry.
	Resolver string
	Findings []Finding
}

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

// Has reports whether the error holds a finding of this code.
func (e *CheckError) Has(code FindingCode) bool {
	return slices.ContainsFunc(e.Findings, func(f Finding) bool { return f.Code == code })
}

// Check compares the environment with the metadata, and each with itself, and returns the
// contradictions, always in the same order. It returns nil if there are none. A zero Metadata
// stands for "no metadata server". Check asks nobody: it is a pure function.
func Check(env Environment, md Metadata) []Finding {
	c := checker{env: env, md: md, hasMD: md.known()}
	c.accelerator()
	c.workers()
	c.workerID()
	c.processes()
	c.pods()
	c.megascale()
	if md.Preempted {
		c.add(FindingPreempted, SeverityError, "instance/preempted", "TRUE", "FALSE",
			"save a checkpoint and leave; the machine stops within seconds")
	}
	return c.found
}

type checker struct {
	env   Environment
	md    Metadata
	hasMD bool
	found []Finding
}

func (c *checker) add(code FindingCode, s Severity, subject string, got, want any, do string) {
	c.found = append(c.found, Finding{code, s, subject, cut(fmt.Sprint(got)), cut(fmt.Sprint(want)), do})
}

func (c *checker) accelerator() {
	env, md := c.env, c.md
	if env.AcceleratorType != "" && md.AcceleratorType != "" && !sameType(env.AcceleratorType, md.AcceleratorType) {
		c.add(FindingAcceleratorType, c.unlessPart(), "TPU_ACCELERATOR_TYPE", env.AcceleratorType, md.AcceleratorType,
			"unset it, or set it to what the metadata says")
	}
	topology := md.TPUEnv.Get("TOPOLOGY")
	if env.Topology != "" && topology != "" && flat(env.Topology) != flat(topology) {
		c.add(FindingTopology, c.unlessPart(), "TPU_TOPOLOGY", env.Topology, topology,
			"unset it, or set it to what the metadata says")
	}
	c.shape("TPU_ACCELERATOR_TYPE", env.AcceleratorType, "TPU_TOPOLOGY", env.Topology, "TPU_WORKER_HOSTNAMES", len(env.Hostnames))
	c.shape("accelerator-type", md.AcceleratorType, "TOPOLOGY in tpu-env", topology, "worker-network-endpoints", len(md.Endpoints))
}

// flat drops the third side of a topology of one layer: "4x4x1" is "4x4".
func flat(topology string) string {
	if strings.Count(topology, "x") == 2 {
		return strings.TrimSuffix(topology, "x1")
	}
	return topology
}

// unlessPart is the severity of what differs from the metadata: an error, unless the environment
// says that the job is on a part of the slice, by its process grid or by the one name "localhost".
func (c *checker) unlessPart() Severity {
	hosts, all := c.env.Hostnames, len(c.md.Endpoints)
	fewer := len(hosts) > 0 && len(hosts) < all
	if c.env.alone() && all > 1 || fewer && (c.env.ProcessBounds.fits(len(hosts)) || len(hosts) == 1 && hosts[0] == "localhost") {
		return SeverityWarning
	}
	return SeverityError
}

// shape holds one source's type against its own topology and number of hosts. What the type says of
// them is inferred.
func (c *checker) shape(typeName, typ, topoName, topology, hostsName string, hosts int) {
	chips := 0
	if topology != "" {
		n, err := parseTopology(topoName, topology)
		if err != nil {
			c.add(FindingTopology, SeverityWarning, topoName, fmt.Sprintf("%q", topology), `such as "4x4" or "2x2x1"`, "correct it")
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
			fmt.Sprintf("%d chips for %s", a.chips, typ), "correct the one that is wrong")
	}
	if hosts != 0 && (hosts < a.minHosts || hosts > a.maxHosts) {
		c.add(FindingWorkerCount, SeverityWarning, hostsName, fmt.Sprintf("%d workers", hosts),
			fmt.Sprintf("%s for %s", hostRange(a), typ),
			"if a worker is missing or the list is of another slice, set it again from the slice that is running")
	}
}

func hostRange(a accelerator) string {
	if a.minHosts == a.maxHosts {
		return fmt.Sprint(a.minHosts)
	}
	return fmt.Sprintf("%d to %d", a.minHosts, a.maxHosts)
}

// sameType sees that "v5e-16" and "v5litepod-16", or "v7x-8" and "tpu7x-8", are one.
func sameType(a, b string) bool {
	x, errX := parseAccelerator("", a)
	y, errY := parseAccelerator("", b)
	return a == b || (errX == nil && errY == nil && x == y)
}

func (c *checker) workers() {
	env, md := c.env, c.md
	if len(env.Hostnames) == 0 || len(md.Endpoints) == 0 {
		return
	}
	if len(env.Hostnames) != len(md.Endpoints) {
		// One process on a part of a slice says "localhost" on purpose.
		c.add(FindingWorkerCount, c.unlessPart(), "TPU_WORKER_HOSTNAMES", fmt.Sprintf("%d workers", len(env.Hostnames)),
			fmt.Sprintf("%d from worker-network-endpoints", len(md.Endpoints)), "unset it, or list the workers of this slice")
		return
	}
	for i, h := range env.Hostnames {
		// Names and addresses cannot be compared without asking a name server.
		if m := md.Endpoints[i].Host; isIP(h) && isIP(m) && h != m {
			c.add(FindingWorkerHosts, SeverityError, fmt.Sprintf("worker %d in TPU_WORKER_HOSTNAMES", i), h, m,
				"the variable is of an earlier slice: unset it")
			return
		}
	}
}

func isIP(s string) bool {
	return s != "" && (strings.Contains(s, ":") || (s[0] >= '0' && s[0] <= '9' && s[len(s)-1] >= '0' && s[len(s)-1] <= '9'))
}

func (c *checker) workerID() {
	env, md := c.env, c.md
	own := SeverityError
	if env.alone() {
		own = SeverityWarning // the number is that of the host in its slice
	}
	if n := len(env.Hostnames); n > 0 && env.WorkerID >= n {
		c.add(FindingWorkerID, own, "TPU_WORKER_ID", env.WorkerID, fmt.Sprintf("0 to %d", n-1),
			"number the workers from 0 in the order of TPU_WORKER_HOSTNAMES")
	}
	if !c.hasMD {
		return
	}
	if n := len(md.Endpoints); n > 0 && md.WorkerID >= n {
		c.add(FindingWorkerID, SeverityError, "agent-worker-number", md.WorkerID, fmt.Sprintf("0 to %d", n-1),
			"the metadata contradicts itself: delete the node and create it again")
	}
	if env.WorkerID >= 0 && md.WorkerID >= 0 && env.WorkerID != md.WorkerID && len(env.Hostnames) == len(md.Endpoints) {
		c.add(FindingWorkerID, own, "TPU_WORKER_ID", env.WorkerID, fmt.Sprintf("%d from agent-worker-number", md.WorkerID),
			"unset it: every host has its own number, do not copy one host's variables to all")
	}
	if s := md.TPUEnv.Get("WORKER_ID"); s != "" && md.WorkerID >= 0 && s != fmt.Sprint(md.WorkerID) {
		c.add(FindingWorkerID, SeverityError, "WORKER_ID in tpu-env", s, fmt.Sprintf("%d from agent-worker-number", md.WorkerID),
			"the metadata contradicts itself: restart the node")
	}
}

func (c *checker) processes() {
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
	if n := env.ProcessBounds.Size(); n > 0 && processes > 0 && !env.ProcessBounds.fits(processes) {
		severity, do := SeverityError, "list one address a process in TPU_PROCESS_ADDRESSES and set CLOUD_TPU_TASK_ID, or unset the bounds"
		if env.alone() {
			severity, do = SeverityWarning, "this process computes alone, on its own host; unset the bounds for a job of all hosts"
		}
		c.add(FindingWorkerCount, severity, subject, fmt.Sprintf("%d processes", processes),
			fmt.Sprintf("%d for TPU_PROCESS_BOUNDS=%s", n, env.ProcessBounds), do)
	}
	if env.alone() && len(env.ProcessAddresses) == 0 && env.TaskID > 0 {
		c.add(FindingWorkerID, SeverityError, "CLOUD_TPU_TASK_ID", env.TaskID, "0 for TPU_PROCESS_BOUNDS="+env.ProcessBounds.String(), "make the two agree")
	}
	told := orBounds(Bounds{}, c.md, "TPU_PROCESS_BOUNDS", "HOST_BOUNDS")
	if n := len(c.md.Endpoints); n > 0 && told != (Bounds{}) && !told.fits(n) {
		c.add(FindingWorkerCount, SeverityError, "worker-network-endpoints", fmt.Sprintf("%d workers", n),
			fmt.Sprintf("%d for the process bounds %s in tpu-env", told.Size(), told), "the metadata contradicts itself: wait until the node is READY")
	}
	chips, visible := env.ChipsPerProcess, len(env.VisibleChips)
	if chips == (Bounds{}) || env.VisibleChips == nil || chips.fits(visible) {
		return
	}
	name, severity := "TPU_CHIPS_PER_PROCESS_BOUNDS", SeverityError
	if env.chipsOfHost {
		// A process may see a part of its host's chips.
		name = "TPU_CHIPS_PER_HOST_BOUNDS"
		if visible < chips.chips() {
			severity = SeverityWarning
		}
	}
	c.add(FindingVisibleChips, severity, "TPU_VISIBLE_CHIPS", fmt.Sprintf("%d chips", visible),
		fmt.Sprintf("%d for %s=%s", chips.chips(), name, chips), "make the two agree")
}

func (c *checker) megascale() {
	m := c.env.Megascale
	if !m.IsSet() {
		return
	}
	if !m.complete() {
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
		c.add(FindingMegascaleIncomplete, SeverityError, "MEGASCALE_*", "without "+strings.Join(missing, ", "), "all of them or none",
			"set the missing ones, or unset all for a job of one slice")
	}
	if m.NumSlices > 0 && m.SliceID >= m.NumSlices {
		c.add(FindingMegascaleStale, SeverityError, "MEGASCALE_SLICE_ID", m.SliceID, fmt.Sprintf("0 to %d", m.NumSlices-1),
			"set MEGASCALE_* again for the slices that are running")
	}
	if !c.hasMD || c.md.TPUEnv.Len() == 0 {
		return
	}
	told, errs := parseMegascale(c.md.TPUEnv.Get)
	if len(errs) > 0 || !told.IsSet() {
		if m.NumSlices != 1 || m.Coordinator != "" {
			c.add(FindingMegascaleUnconfirmed, SeverityWarning, "MEGASCALE_*", "set", "unset: the metadata knows of one slice",
				"if this job has one slice, unset them: they may be left from an earlier job, and the start would wait for slices that are gone")
		}
		return
	}
	const do = "unset it, or take the metadata's value: it is left from before the slices were made again"
	if told.NumSlices > 0 && m.NumSlices > 0 && told.NumSlices != m.NumSlices {
		c.add(FindingMegascaleStale, SeverityError, "MEGASCALE_NUM_SLICES", m.NumSlices, told.NumSlices, do)
	}
	if told.SliceID >= 0 && m.SliceID >= 0 && told.SliceID != m.SliceID {
		c.add(FindingMegascaleStale, SeverityError, "MEGASCALE_SLICE_ID", m.SliceID, told.SliceID, do)
	}
	if told.Coordinator != "" && m.Coordinator != "" && told.Coordinator != m.Coordinator {
		c.add(FindingMegascaleStale, SeverityError, "MEGASCALE_COORDINATOR_ADDRESS", m.Coordinator, told.Coordinator, do)
	}
}
