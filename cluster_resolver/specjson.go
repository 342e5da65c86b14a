package clusterresolver

import (
	"bytes"
	"encoding/json"
	"slices"
	"strconv"
	"strings"

	"github.com/tpustrategy/tpustrategy/errkind"
)

// MarshalJSON returns the jobs in the format of TF_CONFIG, sorted by name. A job is encoded as a list
// of addresses. If its indices have gaps, it is encoded as an object that maps indices to addresses.
func (s ClusterSpec) MarshalJSON() ([]byte, error) {
	jobs := make(map[string]any, len(s.jobs))
	for _, j := range s.jobs {
		list, byIndex := make([]string, len(j.tasks)), make(map[int]string, len(j.tasks))
		dense := true
		for i, t := range j.tasks {
			list[i], byIndex[t.Index] = t.Address, t.Address
			dense = dense && t.Index == i
		}
		if jobs[j.name] = list; !dense {
			jobs[j.name] = byIndex
		}
	}
	return json.Marshal(jobs)
}

// UnmarshalJSON parses the format of [ClusterSpec.MarshalJSON]. A repeated job or index is a
// [*ParseError].
func (s *ClusterSpec) UnmarshalJSON(data []byte) error {
	spec, err := parseSpec(data)
	if err != nil {
		return err
	}
	*s = spec
	return nil
}

func parseSpec(data []byte) (ClusterSpec, error) {
	var s ClusterSpec
	if len(data) > maxSpec {
		return s, parseError("cluster", string(data[:maxQuoted+1]), "longer than "+strconv.Itoa(maxSpec>>20)+" MiB", "")
	}
	err := forEachJSONField("cluster", data, func(name string, value json.RawMessage) error {
		j := jobSpec{name: name}
		if err := parseTasks(&j, value); err != nil {
			return err
		}
		if err := j.validate(); err != nil {
			return err
		}
		s.jobs = append(s.jobs, j)
		return nil
	})
	if err != nil {
		return ClusterSpec{}, err
	}
	slices.SortFunc(s.jobs, func(a, b jobSpec) int { return strings.Compare(a.name, b.name) })
	return s, s.checkSize()
}

// maxSpec is the maximum length of the JSON form in bytes.
const maxSpec = 16 << 20

func parseTasks(j *jobSpec, value json.RawMessage) error {
	source := "cluster." + j.name
	if len(value) > 0 && value[0] == '[' {
		fail := func(err error) error {
			e := parseError(source, string(value[:min(len(value), maxQuoted+1)]), "not a list of addresses",
				`write ["host:port", ...]`)
			e.Err = err
			return e
		}
		// Decode one address at a time to stop early if the list is too long.
		d := json.NewDecoder(bytes.NewReader(value))
		if _, err := d.Token(); err != nil {
			return fail(err)
		}
		for d.More() && len(j.tasks) <= maxWorkers {
			var a string
			if err := d.Decode(&a); err != nil {
				return fail(err)
			}
			j.tasks = append(j.tasks, TaskAddress{len(j.tasks), a})
		}
		return nil
	}
	err := forEachJSONField(source, value, func(key string, v json.RawMessage) error {
		i, err := strconv.Atoi(key)
		// Reject other spellings such as "01", which would be a second key for the same task.
		if err != nil || i < 0 || strconv.Itoa(i) != key {
			return parseError(source, key, "task index is not a plain number from 0 up", `write {"0": "host:port", ...}`)
		}
		var a string
		if err := json.Unmarshal(v, &a); err != nil {
			return parseError(source+"["+key+"]", string(v), "address is not a string", `write "host:port"`)
		}
		if j.tasks = append(j.tasks, TaskAddress{i, a}); len(j.tasks) > maxWorkers {
			return j.validate()
		}
		return nil
	})
	slices.SortFunc(j.tasks, func(a, b TaskAddress) int { return a.Index - b.Index })
	return err
}

// forEachJSONField calls f for each member of a JSON object, in order. Unlike encoding/json, it
// rejects duplicate keys.
func forEachJSONField(source string, data []byte, f func(name string, value json.RawMessage) error) error {
	objectError := func(err error) error {
		e := parseError(source, string(data), "not a JSON object", `write {"worker": ["host:port", ...]}`)
		e.Err = err
		return e
	}
	d := json.NewDecoder(bytes.NewReader(data))
	t, err := d.Token()
	if err != nil {
		return objectError(err)
	}
	if t != json.Delim('{') {
		return objectError(nil)
	}
	seen := map[string]bool{}
	for d.More() {
		t, err := d.Token()
		if err != nil {
			return objectError(err)
		}
		name, ok := t.(string)
		if !ok {
			return objectError(errkind.New(errkind.ValueError, "key is not a string"))
		}
		var value json.RawMessage
		if err := d.Decode(&value); err != nil {
			return objectError(err)
		}
		if seen[name] {
			return parseError(source, name, "duplicate key", "remove one of them")
		}
		seen[name] = true
		if err := f(name, value); err != nil {
			return err
		}
	}
	if _, err := d.Token(); err != nil {
		return objectError(err)
	}
	if d.More() {
		return objectError(errkind.New(errkind.ValueError, "text after the object"))
	}
	return nil
}
