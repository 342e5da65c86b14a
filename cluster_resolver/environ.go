package clusterresolver

import (
	"cmp"
	"errors"
	"strconv"
	"strings"
)

// Environment holds the TPU variables of a process, parsed; [Check] judges them. Where two names
// are given, the first takes precedence, and the second is the older name.
//
// Sources: "Deploy TPU workloads in GKE Standard" and "TPU Multislice in GKE",
// cloud.google.com/kubernetes-engine/docs/how-to/tpus and .../tpu-multislice.
type Environment struct {
	// Hostnames is TPU_WORKER_HOSTNAMES: the slice's hosts in worker order.
	Hostnames []string
	// WorkerID is TPU_WORKER_ID, the place of this host in Hostnames; -1 if not set.
	WorkerID int
	// ProcessAddresses is TPU_PROCESS_ADDRESSES, "host:port" of every process of the slice. The TPU
	// runtime itself listens there: do not bind these ports. "local", as Kaggle has it, is this
	// process alone.
	ProcessAddresses []string
	// ProcessPort is TPU_PROCESS_PORT, the port of this process's TPU runtime; 0 if not set.
	// Without ProcessAddresses the runtimes of the other hosts have the same port.
	ProcessPort int
	// TaskID is CLOUD_TPU_TASK_ID, the place of this process in ProcessAddresses; -1 if not set.
	TaskID int
	// ProcessBounds is TPU_PROCESS_BOUNDS or TPU_HOST_BOUNDS.
	ProcessBounds Bounds
	// ChipsPerProcess is TPU_CHIPS_PER_PROCESS_BOUNDS or TPU_CHIPS_PER_HOST_BOUNDS.
	ChipsPerProcess Bounds
	// chipsOfHost says that ChipsPerProcess was told under the older name, which is the host's.
	chipsOfHost bool
	// VisibleChips is TPU_VISIBLE_CHIPS or TPU_VISIBLE_DEVICES; nil if not set.
	VisibleChips []int
	// AcceleratorType is TPU_ACCELERATOR_TYPE, and Topology is TPU_TOPOLOGY, in chips.
	AcceleratorType, Topology string
	// Name is TPU_NAME.
	Name string
	// SkipMetadata is TPU_SKIP_MDS_QUERY: do not ask the metadata server.
	SkipMetadata bool
	// Megascale holds MEGASCALE_COORDINATOR_ADDRESS, _PORT, _NUM_SLICES, _SLICE_ID.
	Megascale Megascale
	pod       pod
}

// alone reports that the process grid is this one process, though there may be more hosts: a job on
// one host of a slice.
func (e Environment) alone() bool {
	return e.ProcessBounds.Size() == 1 && len(e.ProcessAddresses) < 2
}

// Megascale holds the MEGASCALE_* values of the environment or of the metadata, which join several
// slices.
type Megascale struct {
	// Coordinator is a host without a port; "" if not set. Port is 0 if not set.
	Coordinator string
	Port        int
	// NumSlices is 0 if not set. SliceID is -1 if not set.
	NumSlices, SliceID int
}

// IsSet reports whether any of the values is set. A slice id of 0 alone does not count, so the zero
// value is not set.
func (m Megascale) IsSet() bool {
	return m.Coordinator != "" || m.Port != 0 || m.NumSlices != 0 || m.SliceID > 0
}

// complete reports whether a runtime can join the slices with it.
func (m Megascale) complete() bool {
	return m.Coordinator != "" && m.NumSlices > 0 && m.SliceID >= 0
}

// ReadEnvironment reads and parses the TPU variables. The error joins one [*ParseError] for each
// malformed variable.
func ReadEnvironment(getenv Getenv) (Environment, error) {
	r := envReader{getenv: getenv}
	e := Environment{
		WorkerID:        r.index("TPU_WORKER_ID"),
		TaskID:          r.index("CLOUD_TPU_TASK_ID"),
		ProcessBounds:   r.bounds("TPU_PROCESS_BOUNDS", "TPU_HOST_BOUNDS"),
		ChipsPerProcess: r.bounds("TPU_CHIPS_PER_PROCESS_BOUNDS", "TPU_CHIPS_PER_HOST_BOUNDS"),
		VisibleChips:    r.chips("TPU_VISIBLE_CHIPS", "TPU_VISIBLE_DEVICES"),
		AcceleratorType: r.first("TPU_ACCELERATOR_TYPE").text,
		Topology:        r.first("TPU_TOPOLOGY").text,
		Name:            r.first("TPU_NAME").text,
		SkipMetadata:    r.flag("TPU_SKIP_MDS_QUERY"),
		Megascale:       r.megascale(),
	}
	e.pod = pod{index: r.index("JOB_COMPLETION_INDEX") + 1, name: r.first("HOSTNAME").text}
	if v := r.first("TPU_PROCESS_PORT"); v.text != "" {
		port, err := parsePort(v.name, v.text)
		r.keep(err)
		e.ProcessPort = port
	}
	e.chipsOfHost = r.first("TPU_CHIPS_PER_PROCESS_BOUNDS").text == ""
	if v := r.first("TPU_WORKER_HOSTNAMES"); v.text != "" {
		hosts, err := ParseHosts(v.name, v.text)
		r.keep(err)
		e.Hostnames = hosts
	}
	if v := r.first("TPU_PROCESS_ADDRESSES"); v.text != "" {
		if v.text == "local" { // one process, as Kaggle says it
			e.ProcessAddresses = []string{joinPort("localhost", cmp.Or(e.ProcessPort, RuntimePort))}
		} else {
			list, err := ParseAddresses(v.name, v.text, 0)
			r.keep(err)
			e.ProcessAddresses = list
		}
	}
	return e, errors.Join(r.errs...)
}

type envReader struct {
	getenv Getenv
	errs   []error
}

type envValue struct{ name, text string }

func (r *envReader) keep(err error) {
	if err != nil {
		r.errs = append(r.errs, err)
	}
}

func (r *envReader) first(names ...string) envValue {
	for _, n := range names {
		if s := strings.TrimSpace(r.getenv(n)); s != "" {
			return envValue{n, s}
		}
	}
	return envValue{name: names[0]}
}

func (r *envReader) index(name string) int {
	v := r.first(name)
	if v.text == "" {
		return -1
	}
	n, err := parseIndex(v.name, v.text)
	r.keep(err)
	return n
}

func parseIndex(source, text string) (int, error) {
	n, err := strconv.ParseUint(text, 10, 31)
	if err != nil {
		return -1, parseError(source, text, "not an index", "write a number from 0 up")
	}
	return int(n), nil
}

func (r *envReader) bounds(names ...string) Bounds {
	v := r.first(names...)
	if v.text == "" {
		return Bounds{}
	}
	b, err := ParseBounds(v.name, v.text)
	r.keep(err)
	return b
}

func (r *envReader) flag(name string) bool {
	v := r.first(name)
	switch strings.ToLower(v.text) {
	case "", "0", "f", "false", "no":
		return false
	case "1", "t", "true", "yes":
		return true
	}
	r.keep(parseError(v.name, v.text, "not a truth value", `write "1" or "0"`))
	return false
}

func (r *envReader) chips(names ...string) []int {
	v := r.first(names...)
	if v.text == "" {
		return nil
	}
	var chips []int
	err := splitList(v.name, v.text, func(item string) error {
		n, err := parseIndex(v.name, item)
		chips = append(chips, n)
		return err
	})
	if err != nil {
		r.keep(err)
		return nil
	}
	return chips
}

func (r *envReader) megascale() Megascale {
	m, errs := parseMegascale(func(key string) string { return r.first(key).text })
	r.errs = append(r.errs, errs...)
	return m
}

// parseMegascale reads the four keys from an environment or from "tpu-env", which uses the same
// names.
func parseMegascale(get func(string) string) (Megascale, []error) {
	m := Megascale{SliceID: -1}
	var errs []error
	if s := get("MEGASCALE_COORDINATOR_ADDRESS"); s != "" {
		if validHost(s) {
			m.Coordinator = s
		} else if a, err := parseAddress("MEGASCALE_COORDINATOR_ADDRESS", s, 0); err != nil {
			errs = append(errs, err)
		} else {
			i := strings.LastIndexByte(a, ':')
			m.Coordinator = strings.Trim(a[:i], "[]")
			m.Port, _ = strconv.Atoi(a[i+1:]) // parseAddress has checked it
		}
	}
	if s := get("MEGASCALE_PORT"); s != "" {
		p, err := parsePort("MEGASCALE_PORT", s)
		if err != nil {
			errs = append(errs, err)
		} else {
			m.Port = p
		}
	}
	if s := get("MEGASCALE_NUM_SLICES"); s != "" {
		n, err := parseIndex("MEGASCALE_NUM_SLICES", s)
		if err == nil && (n == 0 || n > maxWorkers) {
			err = parseError("MEGASCALE_NUM_SLICES", s, "not a number of slices", "write a number from 1 up")
		}
		if err != nil {
			errs = append(errs, err)
		} else {
			m.NumSlices = n
		}
	}
	if s := get("MEGASCALE_SLICE_ID"); s != "" {
		n, err := parseIndex("MEGASCALE_SLICE_ID", s)
		if err != nil {
			errs = append(errs, err)
		}
		m.SliceID = n
	}
	return m, errs
}
