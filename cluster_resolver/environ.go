package clusterresolver

import (
	"cmp"
	"errors"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Environment contains the parsed TPU variables of a process. [Check] checks their consistency. If
// a field has two variables, the second is an older name, and the first takes precedence.
//
// The sources are "Deploy TPU workloads in GKE Standard" and "TPU Multislice in GKE",
// cloud.google.com/kubernetes-engine/docs/how-to/tpus and .../tpu-multislice.
type Environment struct {
	// Hostnames is TPU_WORKER_HOSTNAMES, the hosts of the slice in worker order.
	Hostnames []string
	// WorkerID is TPU_WORKER_ID, the index of this host in Hostnames, or -1 if it is not set.
	WorkerID int
	// ProcessAddresses is TPU_PROCESS_ADDRESSES, the "host:port" of each process of the slice. The
	// TPU runtimes listen at these addresses, so programs must not use these ports. The value
	// "local", which Kaggle sets, is the address of this process.
	ProcessAddresses []string
	// ProcessPort is TPU_PROCESS_PORT, the port of the TPU runtime of this process, or 0 if it is
	// not set. Without ProcessAddresses, the runtimes of the other hosts use the same port.
	ProcessPort int
	// TaskID is CLOUD_TPU_TASK_ID, the index of this process in ProcessAddresses, or -1 if it is
	// not set.
	TaskID int
	// ProcessBounds is TPU_PROCESS_BOUNDS or TPU_HOST_BOUNDS.
	ProcessBounds Bounds
	// ChipsPerProcess is TPU_CHIPS_PER_PROCESS_BOUNDS or TPU_CHIPS_PER_HOST_BOUNDS.
	ChipsPerProcess Bounds
	// chipsPerHost is true if ChipsPerProcess is from TPU_CHIPS_PER_HOST_BOUNDS.
	chipsPerHost bool
	// VisibleChips is TPU_VISIBLE_CHIPS or TPU_VISIBLE_DEVICES, or nil if neither is set.
	VisibleChips []int
	// AcceleratorType is TPU_ACCELERATOR_TYPE. Topology is TPU_TOPOLOGY, in chips.
	AcceleratorType, Topology string
	// Name is TPU_NAME.
	Name string
	// SkipMetadata is TPU_SKIP_MDS_QUERY. If true, the metadata server is not queried.
	SkipMetadata bool
	// Megascale contains MEGASCALE_COORDINATOR_ADDRESS, _PORT, _NUM_SLICES and _SLICE_ID.
	Megascale Megascale
	pod       podInfo
}

// isSingleProcess reports whether this is the only process according to the process bounds. The
// slice can have more hosts that this process does not use.
func (e Environment) isSingleProcess() bool {
	return e.ProcessBounds.Size() == 1 && len(e.ProcessAddresses) < 2
}

// Megascale contains the values of the MEGASCALE_* variables, which describe a job with several
// slices. They are read from the environment or from the metadata.
type Megascale struct {
	// Coordinator is a host without a port, or "" if it is not set. Port is 0 if it is not set.
	Coordinator string
	Port        int
	// NumSlices is 0 if it is not set. SliceID is -1 if it is not set.
	NumSlices, SliceID int
}

// IsSet reports whether any of the values is set. A slice id of 0 does not count as a set value,
// because it is the zero value.
func (m Megascale) IsSet() bool {
	return m.Coordinator != "" || m.Port != 0 || m.NumSlices != 0 || m.SliceID > 0
}

// isComplete reports whether all required values are set.
func (m Megascale) isComplete() bool {
	return m.Coordinator != "" && m.NumSlices > 0 && m.SliceID >= 0
}

// ReadEnvironment reads and parses the TPU variables. The error joins one [*ParseError] for each
// malformed variable.
func ReadEnvironment(getenv Getenv) (Environment, error) {
	r := envReader{getenv: getenv}
	e := Environment{
		WorkerID:        readVariable(&r, -1, parseIndex, "TPU_WORKER_ID"),
		TaskID:          readVariable(&r, -1, parseIndex, "CLOUD_TPU_TASK_ID"),
		ProcessBounds:   readVariable(&r, Bounds{}, ParseBounds, "TPU_PROCESS_BOUNDS", "TPU_HOST_BOUNDS"),
		ChipsPerProcess: readVariable(&r, Bounds{}, ParseBounds, "TPU_CHIPS_PER_PROCESS_BOUNDS", "TPU_CHIPS_PER_HOST_BOUNDS"),
		chipsPerHost:    r.lookup("TPU_CHIPS_PER_PROCESS_BOUNDS") == "",
		VisibleChips:    readVariable(&r, nil, parseVisibleChips, "TPU_VISIBLE_CHIPS", "TPU_VISIBLE_DEVICES"),
		AcceleratorType: readVariable(&r, "", parseName, "TPU_ACCELERATOR_TYPE"),
		Topology:        readVariable(&r, "", parseName, "TPU_TOPOLOGY"),
		Name:            readVariable(&r, "", parseName, "TPU_NAME"),
		SkipMetadata:    readVariable(&r, false, parseFlag, "TPU_SKIP_MDS_QUERY"),
		Megascale:       r.readMegascale(),
		pod: podInfo{index: readVariable(&r, -1, parseIndex, "JOB_COMPLETION_INDEX") + 1,
			name: r.lookup("HOSTNAME")},
		ProcessPort: readVariable(&r, 0, parsePort, "TPU_PROCESS_PORT"),
		Hostnames:   readVariable(&r, nil, ParseHosts, "TPU_WORKER_HOSTNAMES"),
	}
	e.ProcessAddresses = readVariable(&r, nil, func(source, text string) ([]string, error) {
		if text == "local" { // set by Kaggle
			return []string{joinPort("localhost", cmp.Or(e.ProcessPort, RuntimePort))}, nil
		}
		return ParseAddresses(source, text, 0)
	}, "TPU_PROCESS_ADDRESSES")
	return e, errors.Join(r.errs...)
}

// envReader reads environment variables and collects the errors of malformed values.
type envReader struct {
	getenv Getenv
	errs   []error
}

func (r *envReader) lookup(name string) string { return strings.TrimSpace(r.getenv.lookup(name)) }

// readVariable parses the value of the first variable that is set. If no variable is set, or the
// value is malformed, readVariable returns unset.
func readVariable[T any](r *envReader, unset T, parse func(source, text string) (T, error), names ...string) T {
	for _, name := range names {
		text := r.lookup(name)
		if text == "" {
			continue
		}
		value, err := parse(name, text)
		if err != nil {
			r.errs = append(r.errs, err)
			return unset
		}
		return value
	}
	return unset
}

// parseName returns the text, or an error if it contains control characters, such as terminal
// escape codes, or bytes that are not UTF-8.
func parseName(source, text string) (string, error) {
	if !isPrintable(text) {
		return "", parseError(source, text, "it has a control character, or bytes that are not UTF-8", "remove them")
	}
	return text, nil
}

// isPrintable reports whether text is valid UTF-8 without control characters.
func isPrintable(text string) bool {
	return utf8.ValidString(text) && !strings.ContainsFunc(text, func(r rune) bool { return !strconv.IsGraphic(r) })
}

func parseIndex(source, text string) (int, error) {
	n, err := strconv.ParseUint(text, 10, 31)
	if err != nil {
		return -1, parseError(source, text, "not an index", "write a number from 0 up")
	}
	return int(n), nil
}

func parseFlag(source, text string) (bool, error) {
	switch strings.ToLower(text) {
	case "0", "f", "false", "no":
		return false, nil
	case "1", "t", "true", "yes":
		return true, nil
	}
	return false, parseError(source, text, "not a truth value", `write "1" or "0"`)
}

func parseVisibleChips(source, text string) (chips []int, err error) {
	err = forEachItem(source, text, strings.TrimSpace, func(item string) error {
		n, err := parseIndex(source, item)
		chips = append(chips, n)
		return err
	})
	return chips, err
}

// parseMegascale parses the MEGASCALE_* values. They have the same names in the environment and in
// the metadata attribute "tpu-env".
func parseMegascale(get Getenv) (Megascale, []error) {
	r := envReader{getenv: get}
	return r.readMegascale(), r.errs
}

func (r *envReader) readMegascale() Megascale {
	m := readVariable(r, Megascale{}, parseCoordinator, "MEGASCALE_COORDINATOR_ADDRESS")
	m.Port = cmp.Or(readVariable(r, 0, parsePort, "MEGASCALE_PORT"), m.Port)
	m.NumSlices = readVariable(r, 0, parseSlices, "MEGASCALE_NUM_SLICES")
	m.SliceID = readVariable(r, -1, parseIndex, "MEGASCALE_SLICE_ID")
	return m
}

// parseCoordinator parses a host with or without a port.
func parseCoordinator(source, text string) (m Megascale, err error) {
	if isValidHost(text) {
		return Megascale{Coordinator: text}, nil
	}
	address, err := parseAddress(source, text, 0)
	if err != nil {
		return m, err
	}
	i := strings.LastIndexByte(address, ':')
	m.Coordinator = strings.Trim(address[:i], "[]")
	m.Port, _ = strconv.Atoi(address[i+1:]) // parseAddress has checked it
	return m, nil
}

func parseSlices(source, text string) (int, error) {
	n, err := parseIndex(source, text)
	if err == nil && (n == 0 || n > maxWorkers) {
		err = parseError(source, text, "not a number of slices", "write a number from 1 up")
	}
	return n, err
}
