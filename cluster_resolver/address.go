package clusterresolver

import (
	"net"
	"net/netip"
	"strconv"
	"strings"
)

// Ports in use on TPU hosts.
const (
	// DefaultPort is where TensorFlow's TPU workers listen, and what an address
	// without a port is given.
	DefaultPort = 8470
	// RuntimePort is where the TPU runtime of a host listens for those of the others,
	// unless TPU_PROCESS_ADDRESSES or TPU_PROCESS_PORT say otherwise.
	RuntimePort = 8471
)

// maxWorkers bounds any list of hosts: more than the largest slice by far, small
// enough that a hostile list costs little.
const maxWorkers = 1 << 16

// Endpoint is one worker of the metadata value "worker-network-endpoints".
type Endpoint struct {
	// Name and UID are the first two fields; the service writes "unknown" there now.
	Name, UID string
	// Host is the worker's address or host name, without a port.
	Host string
}

// ParseEndpoints reads the metadata value "worker-network-endpoints": workers in
// order of their id, separated by commas, each "name:uid:host". The host may be an
// IPv6 address. A worker of one field is taken as a bare host. Errors are
// [*ParseError]; a host given twice is one.
func ParseEndpoints(text string) ([]Endpoint, error) {
	const source = "worker-network-endpoints"
	text = strings.TrimSpace(text)
	if text == "" {
		return nil, parseError(source, "", "empty", `expected "name:uid:address,..."`)
	}
	n := strings.Count(text, ",") + 1
	if n > maxWorkers {
		return nil, parseError(source, text, "more than "+strconv.Itoa(maxWorkers)+" workers", "")
	}
	list := make([]Endpoint, 0, n)
	seen := make(map[string]bool, n)
	for item := range strings.SplitSeq(text, ",") {
		item = strings.TrimSpace(item)
		e := Endpoint{Host: item}
		if name, rest, ok := strings.Cut(item, ":"); ok {
			uid, host, ok := strings.Cut(rest, ":")
			if !ok {
				return nil, parseError(source, item, "worker has two fields", `expected "name:uid:address"`)
			}
			e = Endpoint{Name: name, UID: uid, Host: host}
		}
		if !validHost(e.Host) {
			return nil, parseError(source, item, "worker has no valid host", `expected "name:uid:address"`)
		}
		if seen[e.Host] {
			return nil, parseError(source, e.Host, "two workers with one address", "")
		}
		seen[e.Host] = true
		list = append(list, e)
	}
	return list, nil
}

// ParseHosts reads a comma-separated list of host names or addresses without ports,
// as TPU_WORKER_HOSTNAMES has it. source names the input in errors.
func ParseHosts(source, text string) ([]string, error) {
	var hosts []string
	if err := splitList(source, text, func(item string) error {
		if !validHost(item) {
			return parseError(source, item, "not a host name or address",
				"write hosts separated by commas, without ports")
		}
		hosts = append(hosts, item)
		return nil
	}); err != nil {
		return nil, err
	}
	return hosts, nil
}

// ParseAddresses reads a comma-separated list of "host:port", as
// TPU_PROCESS_ADDRESSES has it, or TensorFlow's "grpc://host[:port]". A missing port
// becomes defaultPort, or is an error if that is 0. The scheme is dropped.
func ParseAddresses(source, text string, defaultPort int) ([]string, error) {
	var list []string
	if err := splitList(source, text, func(item string) error {
		a, err := parseAddress(source, strings.TrimPrefix(item, DefaultRPCLayer+"://"), defaultPort)
		list = append(list, a)
		return err
	}); err != nil {
		return nil, err
	}
	return list, nil
}

// splitList calls f for each item, refuses an empty list or item, and refuses an
// item that is given twice: two workers cannot be at one address.
func splitList(source, text string, f func(item string) error) error {
	text = strings.TrimSpace(text)
	if text == "" {
		return parseError(source, "", "empty list", "name at least one worker")
	}
	n := strings.Count(text, ",") + 1
	if n > maxWorkers {
		return parseError(source, text, "more than "+strconv.Itoa(maxWorkers)+" workers", "")
	}
	seen := make(map[string]bool, n)
	for item := range strings.SplitSeq(text, ",") {
		item = strings.TrimSpace(item)
		if item == "" {
			return parseError(source, text, "empty item in the list", "remove the stray comma")
		}
		if seen[item] {
			return parseError(source, item, "given twice", "name each worker once")
		}
		seen[item] = true
		if err := f(item); err != nil {
			return err
		}
	}
	return nil
}

func parseAddress(source, text string, defaultPort int) (string, error) {
	const hint = `write "host:port", with an IPv6 address in brackets`
	if validHost(text) { // no port, perhaps a bare IPv6 address
		if defaultPort == 0 {
			return "", parseError(source, text, "address has no port", hint)
		}
		return joinPort(text, defaultPort), nil
	}
	if inner, ok := strings.CutPrefix(text, "["); ok && defaultPort != 0 {
		if inner, ok := strings.CutSuffix(inner, "]"); ok && validHost(inner) {
			return joinPort(inner, defaultPort), nil
		}
	}
	host, port, err := net.SplitHostPort(text)
	if err != nil || !validHost(host) {
		return "", parseError(source, text, "not an address", hint)
	}
	n, err := parsePort(source, port)
	if err != nil {
		return "", err
	}
	return joinPort(host, n), nil
}

func parsePort(source, text string) (int, error) {
	n, err := strconv.ParseUint(text, 10, 16)
	if err != nil || n == 0 {
		return 0, parseError(source, text, "not a port", "write a number from 1 to 65535")
	}
	return int(n), nil
}

func joinPort(host string, port int) string {
	return net.JoinHostPort(host, strconv.Itoa(port))
}

// validHost accepts an IP address, or a name of letters, digits, '.', '-', '_' that
// starts and ends with a letter or digit. An IPv6 zone has the characters of a name.
func validHost(s string) bool {
	if s == "" || len(s) > 255 {
		return false
	}
	ipv6 := false
	for i := range len(s) {
		c := s[i]
		switch {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9':
		case (c == '-' || c == '.' || c == '_') && i > 0 && i < len(s)-1:
		case c == ':' || c == '%':
			ipv6 = true
		default:
			return false
		}
	}
	if !ipv6 {
		return true
	}
	_, err := netip.ParseAddr(s)
	return err == nil
}
