package clusterresolver

import (
	"maps"
	"slices"
	"strings"
)

// TPUEnv contains the keys and values of the metadata attribute "tpu-env", which describes a slice.
// It is an immutable value.
type TPUEnv struct{ values map[string]string }

// maxTPUEnv is the maximum length of the attribute in bytes. Real values have a few thousand bytes.
const maxTPUEnv = 1 << 20

// ParseTPUEnv parses the attribute "tpu-env". The format is the subset of YAML that the service
// writes: one "KEY: value" per line, with a plain or quoted value. A line that starts with a space
// continues the plain value of the previous line. Blank lines and lines that start with '#' are
// ignored. Malformed lines and duplicate keys are [*ParseError] values.
func ParseTPUEnv(text string) (TPUEnv, error) {
	if len(text) > maxTPUEnv {
		return TPUEnv{}, parseError("tpu-env", text, "longer than 1 MiB", "")
	}
	values := map[string]string{}
	lastKey, isPlain := "", false // only plain values can continue on the next line
	for line := range strings.SplitSeq(text, "\n") {
		trimmed := strings.TrimSpace(line)
		if trimmed == "" || trimmed[0] == '#' || trimmed == "---" {
			continue
		}
		if line[0] == ' ' || line[0] == '\t' {
			if !isPlain {
				return TPUEnv{}, parseError("tpu-env", line, "indented line without a plain value above it", "")
			}
			values[lastKey] = strings.TrimSpace(values[lastKey] + " " + trimmed)
			continue
		}
		key, value, ok := strings.Cut(trimmed, ":")
		key = strings.TrimSpace(key)
		if !ok || !isValidKey(key) {
			return TPUEnv{}, parseError("tpu-env", line, "line is not KEY: value", "")
		}
		if _, exists := values[key]; exists {
			return TPUEnv{}, parseError("tpu-env", key, "duplicate key", "")
		}
		var err error
		if values[key], isPlain, err = unquote(strings.TrimSpace(value)); err != nil {
			return TPUEnv{}, err
		}
		lastKey = key
	}
	return TPUEnv{values}, nil
}

func isValidKey(s string) bool {
	if s == "" {
		return false
	}
	for i := range len(s) {
		c := s[i]
		if (c < 'A' || c > 'Z') && (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '_' && c != '-' && c != '.' {
			return false
		}
	}
	return true
}

func unquote(s string) (value string, plain bool, err error) {
	if s == "" || (s[0] != '\'' && s[0] != '"') {
		return s, true, nil
	}
	quote, body := s[0], s[1:]
	end := len(body) - 1
	if end < 0 || body[end] != quote {
		return "", false, parseError("tpu-env", s, "missing closing quote", "")
	}
	body = body[:end]
	if quote == '\'' {
		// A quote inside a single-quoted value is escaped by doubling it.
		if strings.IndexByte(body, '\'') < 0 {
			return body, false, nil
		}
		if strings.IndexByte(strings.ReplaceAll(body, "''", ""), '\'') >= 0 {
			return "", false, parseError("tpu-env", s, "stray quote inside the value", "")
		}
		return strings.ReplaceAll(body, "''", "'"), false, nil
	}
	var b strings.Builder
	for i := 0; i < len(body); i++ {
		c := body[i]
		if c == '"' {
			return "", false, parseError("tpu-env", s, "stray quote inside the value", "")
		}
		if c == '\\' {
			i++
			if i == len(body) {
				return "", false, parseError("tpu-env", s, "missing closing quote", "")
			}
			switch body[i] {
			case 'n':
				c = '\n'
			case 't':
				c = '\t'
			case '\\', '"', '/':
				c = body[i]
			default:
				return "", false, parseError("tpu-env", s, "unknown escape in the value", "")
			}
		}
		b.WriteByte(c)
	}
	return b.String(), false, nil
}

// Get returns the value of a key, or "" if the key does not exist.
func (e TPUEnv) Get(key string) string { return e.values[key] }

// Keys returns the sorted keys in a new slice.
func (e TPUEnv) Keys() []string { return slices.Sorted(maps.Keys(e.values)) }

// Len returns the number of keys.
func (e TPUEnv) Len() int { return len(e.values) }

// String returns the keys and values, sorted by key, in the format of [ParseTPUEnv].
func (e TPUEnv) String() string {
	var b strings.Builder
	for _, key := range e.Keys() {
		value := e.values[key]
		b.WriteString(key + ": ")
		if strings.Contains(value, "\n") {
			r := strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`, "\t", `\t`)
			b.WriteString(`"` + r.Replace(value) + "\"\n")
			continue
		}
		b.WriteString("'" + strings.ReplaceAll(value, "'", "''") + "'\n")
	}
	return b.String()
}
