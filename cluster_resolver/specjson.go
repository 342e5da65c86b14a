package clusterresolver

import (
	"bytes"
	"encoding/json"
	"slices"
	"strconv"
	"strings"

	"github.com/tpustrategy/tpustrategy/errkind"
)

// MarshalJSON writes jobs by name. A dense job is a list of addresses, one with gaps an object from
// index to address: the two forms that TF_CONFIG knows.
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

// UnmarshalJSON reads both forms that [ClusterSpec.MarshalJSON] writes. A job or an index given
// twice is a [*ParseError], not a silent last-one-wins.
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
	err := eachMember("cluster", data, func(name string, value json.RawMessage) error {
		j := jobSpec{name: name}
		if err := parseTasks(&j, value); err != nil {
			return err
		}
		if err := j.check(); err != nil {
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

// maxSpec bounds the text of a cluster, in bytes.
const maxSpec = 16 << 20

func parseTasks(j *jobSpec, value json.RawMessage) error {
	source := "cluster." + j.name
	if len(value) > 0 && value[0] == '[' {
		bad := func(err error) error {
			e := parseError(source, string(value[:min(len(value), maxQuoted+1)]), "not a list of addresses", `write ["host:port", ...]`)
			e.Err = err
			return e
		}
		// One by one, so that a list that is too long is left in the middle.
		d := json.NewDecoder(bytes.NewReader(value))
		if _, err := d.Token(); err != nil {
			return bad(err)
		}
		for d.More() && len(j.tasks) <= maxWorkers {
			var a string
			if err := d.Decode(&a); err != nil {
				return bad(err)
			}
			j.tasks = append(j.tasks, TaskAddress{len(j.tasks), a})
		}
		return nil
	}
	err := eachMember(source, value, func(key string, v json.RawMessage) error {
		i, err := strconv.Atoi(key)
		// "01" and "1" would be two keys for one task.
		if err != nil || i < 0 || strconv.Itoa(i) != key {
			return parseError(source, key, "task index is not a plain number from 0 up", `write {"0": "host:port", ...}`)
		}
		var a string
		if err := json.Unmarshal(v, &a); err != nil {
			return parseError(source+"["+key+"]", string(v), "address is not a string", `write "host:port"`)
		}
		if j.tasks = append(j.tasks, TaskAddress{i, a}); len(j.tasks) > maxWorkers {
			return j.check()
		}
		return nil
	})
	slices.SortFunc(j.tasks, func(a, b TaskAddress) int { return a.Index - b.Index })
	return err
}

// eachMember walks the members of one JSON object in order. encoding/json alone keeps the last of
// two equal keys, which would drop a whole job without a word.
func eachMember(source string, data []byte, f func(name string, value json.RawMessage) error) error {
	shape := func(err error) error {
		e := parseError(source, string(data), "not a JSON object", `write {"worker": ["host:port", ...]}`)
		e.Err = err
		return e
	}
	d := json.NewDecoder(bytes.NewReader(data))
	t, err := d.Token()
	if err != nil {
		return shape(err)
	}
	if t != json.Delim('{') {
		return shape(nil)
	}
	seen := map[string]bool{}
	for d.More() {
		t, err := d.Token()
		if err != nil {
			return shape(err)
		}
		name, ok := t.(string)
		if !ok {
			return shape(errkind.New(errkind.ValueError, "key is not a string"))
		}
		var value json.RawMessage
		if err := d.Decode(&value); err != nil {
			return shape(err)
		}
		if seen[name] {
			return parseError(source, name, "key given twice", "keep one of them")
		}
		seen[name] = true
		if err := f(name, value); err != nil {
			return err
		}
	}
	if _, err := d.Token(); err != nil {
		return shape(err)
	}
	if d.More() {
		return shape(errkind.New(errkind.ValueError, "text after the object"))
	}
	return nil
}
