package clusterresolver

import (
	"net"
	"net/netip"
	"strconv"
	"strings"
)

// The ports in use on TPU hosts.
const (
	// DefaultPort is the port of TensorFlow's TPU workers, and of an address without a port.
	DefaultPort = 8470
	// RuntimePort is the port where a host's TPU runtime listens for the other hosts' runtimes,
	// unless TPU_PROCESS_ADDRESSES or TPU_PROCESS_PORT gives another.
	RuntimePort = 8471
)

// maxWorkers bounds any list of hosts: more than the largest slice by far, small enough that a
// hostile list costs little.
const maxWorkers = 1 << 16

// Endpoint is one worker of the metadata value "worker-network-endpoints".
type Endpoint struct {
	// Name and UID are the first two fields, in which the service now writes "unknown".
	Name, UID string
	// Host is the worker's address or host name, without a port.
	Host string
}

// ParseEndpoints reads the metadata value "worker-network-endpoints": workers in the order of their
// ids, separated by commas, each as "name:uid:host". The host may be an IPv6 address. A worker of
// one field is a bare host. Errors are [*ParseError]s. A host that is given twice is an error.
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
		if key := hostKey(e.Host); seen[key] {
			return nil, parseError(source, e.Host, "two workers with one address", "")
		} else {
			seen[key] = true
		}
		list = append(list, e)
	}
	return list, nil
}

// ParseHosts reads a comma-separated list of host names or addresses without ports, as
// TPU_WORKER_HOSTNAMES has it. source names the input in errors, which are [*ParseError]s.
func ParseHosts(source, text string) ([]string, error) {
	var hosts []string
	if err := splitList(source, text, hostKey, func(item string) error {
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

// ParseAddresses reads a comma-separated list of "host:port", as TPU_PROCESS_ADDRESSES has it, or
// of TensorFlow's "grpc://host[:port]", and returns the addresses without the scheme. An address
// without a port gets defaultPort; if defaultPort is 0, it is an error. Errors are [*ParseError]s.
func ParseAddresses(source, text string, defaultPort int) ([]string, error) {
	var list []string
	key := func(item string) string { return addressKey(item, defaultPort) }
	if err := splitList(source, text, key, func(item string) error {
		a, err := parseAddress(source, strings.TrimPrefix(item, DefaultRPCLayer+"://"), defaultPort)
		list = append(list, a)
		return err
	}); err != nil {
		return nil, err
	}
	return list, nil
}

// splitList calls f for each item. It returns an error for an empty list, an empty item, and two items
// with the same key, because two workers cannot have one address.
func splitList(source, text string, key func(item string) string, f func(item string) error) error {
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
			return parseError(source, item, "given twice", "name each worker once")
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

// hostKey returns the same text for all spellings of a host: names are equal in every case and with a
// dot behind them, and an IP address has several forms.
func hostKey(host string) string {
	if ip, err := netip.ParseAddr(host); err == nil {
		return ip.Unmap().String()
	}
	return strings.ToLower(strings.TrimSuffix(host, "."))
}

// addressKey returns the same text for all spellings of an address: with and without TensorFlow's
// scheme, and with and without the default port. Text that is not an address is its own key.
func addressKey(text string, defaultPort int) string {
	a, err := parseAddress("", strings.TrimPrefix(text, DefaultRPCLayer+"://"), defaultPort)
	if err != nil {
		return text
	}
	host, port, err := net.SplitHostPort(a)
	if err != nil {
		return text
	}
	return net.JoinHostPort(hostKey(host), port)
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

// validHost accepts an IP address, or a name of letters, digits, '.', '-', '_' that starts and ends
// with a letter or digit; a name that is rooted has a '.' behind that. An IPv6 zone has the
// characters of a name.
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
		case c == '.' && i > 0 && s[i-1] != '.': // of a rooted name
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
