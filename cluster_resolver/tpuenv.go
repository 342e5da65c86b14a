package clusterresolver

import (
	"maps"
	"slices"
	"strings"
)

// TPUEnv is the metadata attribute "tpu-env", which describes the slice to the TPU VM as keys and
// values. It is an immutable value.
type TPUEnv struct{ values map[string]string }

// maxTPUEnv bounds the text, in bytes; real ones have a few thousand.
const maxTPUEnv = 1 << 20

// ParseTPUEnv reads the attribute. Its format is the part of YAML that the service writes: one
// "KEY: value" a line, the value plain or in single or double quotes; a line that starts with a
// space goes on with the plain value above it. Blank lines and lines starting with '#' are skipped.
// Errors are [*ParseError]; a key given twice is one.
func ParseTPUEnv(text string) (TPUEnv, error) {
	if len(text) > maxTPUEnv {
		return TPUEnv{}, parseError("tpu-env", text, "longer than 1 MiB", "")
	}
	values := map[string]string{}
	last, plain := "", false // the last key, and whether its value may go on in the next line
	for line := range strings.SplitSeq(text, "\n") {
		trimmed := strings.TrimSpace(line)
		if trimmed == "" || trimmed[0] == '#' || trimmed == "---" {
			continue
		}
		if line[0] == ' ' || line[0] == '\t' {
			if !plain {
				return TPUEnv{}, parseError("tpu-env", line, "indented line without a plain value above it", "")
			}
			values[last] = strings.TrimSpace(values[last] + " " + trimmed)
			continue
		}
		key, value, ok := strings.Cut(trimmed, ":")
		key = strings.TrimSpace(key)
		if !ok || !validKey(key) {
			return TPUEnv{}, parseError("tpu-env", line, "line is not KEY: value", "")
		}
		if _, twice := values[key]; twice {
			return TPUEnv{}, parseError("tpu-env", key, "key given twice", "")
		}
		var err error
		if values[key], plain, err = unquote(strings.TrimSpace(value)); err != nil {
			return TPUEnv{}, err
		}
		last = key
	}
	return TPUEnv{values}, nil
}

func validKey(s string) bool {
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
		return "", false, parseError("tpu-env", s, "value has an opening quote only", "")
	}
	body = body[:end]
	if quote == '\'' {
		// A quote inside is written twice; what is left over is a stray one.
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
				return "", false, parseError("tpu-env", s, "value has an opening quote only", "")
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

// Get returns the value of a key, and "" if the key is absent.
func (e TPUEnv) Get(key string) string { return e.values[key] }

// Keys returns the keys, sorted. The slice belongs to the caller.
func (e TPUEnv) Keys() []string { return slices.Sorted(maps.Keys(e.values)) }

// Len returns the number of keys.
func (e TPUEnv) Len() int { return len(e.values) }

// String returns the pairs, sorted by key, in the form that [ParseTPUEnv] reads.
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
