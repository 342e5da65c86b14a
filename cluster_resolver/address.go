package clusterresolver

import (
	"net"
	"net/netip"
	"strconv"
	"strings"
)

// Default ports of TPU hosts.
const (
	// DefaultPort is the port of TensorFlow's TPU workers. It is used for addresses without a port.
	DefaultPort = 8470
	// RuntimePort is the port at which the TPU runtimes of the hosts connect to each other, unless
	// TPU_PROCESS_ADDRESSES or TPU_PROCESS_PORT is set.
	RuntimePort = 8471
)

// maxWorkers is the maximum length of a list of hosts. It is larger than any slice and limits the
// cost of malformed input.
const maxWorkers = 1 << 16

// Endpoint is the address of one worker in the metadata attribute "worker-network-endpoints".
type Endpoint struct {
	// Name and UID are the first two fields. The service currently sets both to "unknown".
	Name, UID string
	// Host is the address or host name of the worker, without a port.
	Host string
}

// ParseEndpoints parses the metadata attribute "worker-network-endpoints": the workers in the order
// of their ids, separated by commas. Each worker has the form "name:uid:host" or "host", where host
// can be an IPv6 address. Duplicate hosts are an error. Errors are [*ParseError] values.
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
		if !isValidHost(e.Host) {
			return nil, parseError(source, item, "worker has no valid host", `expected "name:uid:address"`)
		}
		if key := canonicalHost(e.Host); seen[key] {
			return nil, parseError(source, e.Host, "two workers with one address", "")
		} else {
			seen[key] = true
		}
		list = append(list, e)
	}
	return list, nil
}

// ParseHosts parses a comma-separated list of host names or addresses without ports, the format of
// TPU_WORKER_HOSTNAMES. source is the name of the input in errors. Errors are [*ParseError] values.
func ParseHosts(source, text string) ([]string, error) {
	var hosts []string
	if err := forEachItem(source, text, canonicalHost, func(item string) error {
		if !isValidHost(item) {
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

// ParseAddresses parses a comma-separated list of "host:port", the format of TPU_PROCESS_ADDRESSES,
// or of TensorFlow's "grpc://host[:port]". It returns the addresses without the scheme. defaultPort
// is added to addresses without a port; if it is 0, such addresses are an error. Errors are
// [*ParseError] values.
func ParseAddresses(source, text string, defaultPort int) ([]string, error) {
	var list []string
	key := func(item string) string { return canonicalAddress(item, defaultPort) }
	if err := forEachItem(source, text, key, func(item string) error {
		a, err := parseAddress(source, strings.TrimPrefix(item, DefaultRPCLayer+"://"), defaultPort)
		list = append(list, a)
		return err
	}); err != nil {
		return nil, err
	}
	return list, nil
}

// forEachItem calls f for each item of a comma-separated list. An empty list and an empty item are
// errors. key returns a canonical form of an item; two items with the same key are an error.
func forEachItem(source, text string, key func(item string) string, f func(item string) error) error {
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
		if k := key(item); seen[k] {
			return parseError(source, item, "listed twice", "list each entry once")
		} else {
			seen[k] = true
		}
		if err := f(item); err != nil {
			return err
		}
	}
	return nil
}

func parseAddress(source, text string, defaultPort int) (string, error) {
	const hint = `write "host:port", with an IPv6 address in brackets`
	if isValidHost(text) { // no port, perhaps a bare IPv6 address
		if defaultPort == 0 {
			return "", parseError(source, text, "address has no port", hint)
		}
		return joinPort(text, defaultPort), nil
	}
	if inner, ok := strings.CutPrefix(text, "["); ok && defaultPort != 0 {
		if inner, ok := strings.CutSuffix(inner, "]"); ok && isValidHost(inner) {
			return joinPort(inner, defaultPort), nil
		}
	}
	host, port, err := net.SplitHostPort(text)
	if err != nil || !isValidHost(host) {
		return "", parseError(source, text, "not an address", hint)
	}
	n, err := parsePort(source, port)
	if err != nil {
		return "", err
	}
	return joinPort(host, n), nil
}

// canonicalHost returns the same text for all spellings of a host: a name in any case, with or
// without a trailing dot, and all formats of an IP address.
func canonicalHost(host string) string {
	if ip, err := netip.ParseAddr(host); err == nil {
		return ip.Unmap().String()
	}
	return strings.ToLower(strings.TrimSuffix(host, "."))
}

// canonicalAddress returns the same text for all spellings of an address: with and without TensorFlow's
// scheme, and with and without the default port. Text that is not an address is returned unchanged.
func canonicalAddress(text string, defaultPort int) string {
	a, err := parseAddress("", strings.TrimPrefix(text, DefaultRPCLayer+"://"), defaultPort)
	if err != nil {
		return text
	}
	host, port, err := net.SplitHostPort(a)
	if err != nil {
		return text
	}
	return net.JoinHostPort(canonicalHost(host), port)
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

// isValidHost reports whether s is an IP address, or a name of letters, digits, '.', '-' and '_'
// that starts with a letter or digit and ends with a letter, digit or dot.
func isValidHost(s string) bool {
	if s == "" || len(s) > 255 {
		return false
	}
	ipv6 := false
	for i := range len(s) {
		c := s[i]
		switch {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9':
		case (c == '-' || c == '.' || c == '_') && i > 0 && i < len(s)-1:
		case c == '.' && i > 0 && s[i-1] != '.': // trailing dot
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
