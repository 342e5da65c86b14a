package clusterresolver

import (
	"cmp"
	"errors"
	"strconv"
	"strings"
	"unicode/utf8"
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
		WorkerID:        read(&r, -1, parseIndex, "TPU_WORKER_ID"),
		TaskID:          read(&r, -1, parseIndex, "CLOUD_TPU_TASK_ID"),
		ProcessBounds:   read(&r, Bounds{}, ParseBounds, "TPU_PROCESS_BOUNDS", "TPU_HOST_BOUNDS"),
		ChipsPerProcess: read(&r, Bounds{}, ParseBounds, "TPU_CHIPS_PER_PROCESS_BOUNDS", "TPU_CHIPS_PER_HOST_BOUNDS"),
		chipsOfHost:     r.text("TPU_CHIPS_PER_PROCESS_BOUNDS") == "",
		VisibleChips:    read(&r, nil, parseChips, "TPU_VISIBLE_CHIPS", "TPU_VISIBLE_DEVICES"),
		AcceleratorType: read(&r, "", parseName, "TPU_ACCELERATOR_TYPE"),
		Topology:        read(&r, "", parseName, "TPU_TOPOLOGY"),
		Name:            read(&r, "", parseName, "TPU_NAME"),
		SkipMetadata:    read(&r, false, parseFlag, "TPU_SKIP_MDS_QUERY"),
		Megascale:       r.megascale(),
		pod:             pod{index: read(&r, -1, parseIndex, "JOB_COMPLETION_INDEX") + 1, name: r.text("HOSTNAME")},
		ProcessPort:     read(&r, 0, parsePort, "TPU_PROCESS_PORT"),
		Hostnames:       read(&r, nil, ParseHosts, "TPU_WORKER_HOSTNAMES"),
	}
	e.ProcessAddresses = read(&r, nil, func(source, text string) ([]string, error) {
		if text == "local" { // one process, as Kaggle says it
			return []string{joinPort("localhost", cmp.Or(e.ProcessPort, RuntimePort))}, nil
		}
		return ParseAddresses(source, text, 0)
	}, "TPU_PROCESS_ADDRESSES")
	return e, errors.Join(r.errs...)
}

// envReader reads values by name, and collects the errors of those that are malformed.
type envReader struct {
	getenv Getenv
	errs   []error
}

func (r *envReader) text(name string) string { return strings.TrimSpace(r.getenv.get(name)) }

// read parses the first of the names that is set. A value that is not set or malformed is unset.
func read[T any](r *envReader, unset T, parse func(source, text string) (T, error), names ...string) T {
	for _, name := range names {
		text := r.text(name)
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

// parseName returns a name that can be printed: an error for control characters, such as those of terminal
// escape codes, and for bytes that are not UTF-8.
func parseName(source, text string) (string, error) {
	if !isPrintable(text) {
		return "", parseError(source, text, "it has a control character, or bytes that are not UTF-8", "remove them")
	}
	return text, nil
}

// isPrintable reports whether a text is UTF-8 without control characters.
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

func parseChips(source, text string) (chips []int, err error) {
	err = splitList(source, text, strings.TrimSpace, func(item string) error {
		n, err := parseIndex(source, item)
		chips = append(chips, n)
		return err
	})
	return chips, err
}

// parseMegascale reads the four values from an environment or from "tpu-env", which uses the same
// names.
func parseMegascale(get Getenv) (Megascale, []error) {
	r := envReader{getenv: get}
	return r.megascale(), r.errs
}

func (r *envReader) megascale() Megascale {
	m := read(r, Megascale{}, parseCoordinator, "MEGASCALE_COORDINATOR_ADDRESS")
	m.Port = cmp.Or(read(r, 0, parsePort, "MEGASCALE_PORT"), m.Port)
	m.NumSlices = read(r, 0, parseSlices, "MEGASCALE_NUM_SLICES")
	m.SliceID = read(r, -1, parseIndex, "MEGASCALE_SLICE_ID")
	return m
}

// parseCoordinator reads a host with or without a port.
func parseCoordinator(source, text string) (m Megascale, err error) {
	if validHost(text) {
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
