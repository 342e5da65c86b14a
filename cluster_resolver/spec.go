package clusterresolver

import (
	"cmp"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/tpustrategy/tpustrategy/errkind"
)

// ClusterSpec contains the tasks of each job and their addresses. It corresponds to TensorFlow's
// tf.train.ClusterSpec. Task indices start at 0 and may have gaps. A ClusterSpec is an immutable
// value and safe for concurrent use. The zero value is an empty cluster, which represents a job
// with only this process.
type ClusterSpec struct {
	jobs []jobSpec // sorted by name
}

type jobSpec struct {
	name  string
	tasks []TaskAddress // sorted by index
}

// TaskAddress is the address of one task of a job.
type TaskAddress struct {
	// Index is the index of the task in its job, from 0.
	Index int
	// Address is "host:port", or any text for a [Simple] cluster.
	Address string
}

// NewClusterSpec returns a spec in which jobs[job][i] is the address of task i of a job. It copies
// the map. An empty job name or address is a [*ParseError].
func NewClusterSpec(jobs map[string][]string) (ClusterSpec, error) {
	sparse := make(map[string]map[int]string, len(jobs))
	for name, addresses := range jobs {
		tasks := make(map[int]string, len(addresses))
		for i, a := range addresses {
			tasks[i] = a
		}
		sparse[name] = tasks
	}
	return NewSparseClusterSpec(sparse)
}

// NewSparseClusterSpec returns a spec in which jobs[job][i] is the address of task i of a job. Task
// indices may have gaps. It copies the maps. An empty job name, an empty address and a negative
// index are [*ParseError] values.
func NewSparseClusterSpec(jobs map[string]map[int]string) (ClusterSpec, error) {
	var s ClusterSpec
	for _, name := range slices.Sorted(maps.Keys(jobs)) {
		j := jobSpec{name: name}
		for _, i := range slices.Sorted(maps.Keys(jobs[name])) {
			j.tasks = append(j.tasks, TaskAddress{i, jobs[name][i]})
		}
		if err := j.validate(); err != nil {
			return ClusterSpec{}, err
		}
		s.jobs = append(s.jobs, j)
	}
	return s, s.checkSize()
}

// maxTasks is the maximum number of tasks of all jobs, and the maximum number of jobs.
const maxTasks = 4 * maxWorkers

// checkSize returns an error if there are too many jobs or tasks.
func (s ClusterSpec) checkSize() error {
	if len(s.jobs) > maxTasks || s.Len() > maxTasks {
		return parseError("cluster", "", "more than "+strconv.Itoa(maxTasks)+" tasks", "")
	}
	return nil
}

// checkAddresses returns an error if two tasks have the same address. Different spellings of an
// address, with or without the default port, are treated as equal.
func (s ClusterSpec) checkAddresses() error {
	seen := make(map[string]Task, s.Len())
	for task, address := range s.All() {
		key := canonicalAddress(address, DefaultPort)
		if first, ok := seen[key]; ok {
			return parseError(fmt.Sprintf("cluster.%s[%d]", task.Type, task.ID), address,
				fmt.Sprintf("%s[%d] has the same address", first.Type, first.ID), "use a different address for each task")
		}
		seen[key] = task
	}
	return nil
}

func (j jobSpec) validate() error {
	if strings.TrimSpace(j.name) == "" {
		return parseError("cluster", "", "empty job name", `name it, such as "worker"`)
	}
	if len(j.tasks) > maxWorkers {
		return parseError("cluster."+truncate(j.name), "", "more than "+strconv.Itoa(maxWorkers)+" tasks", "")
	}
	for _, t := range j.tasks {
		source := "cluster." + j.name
		if t.Index < 0 {
			return parseError(source, strconv.Itoa(t.Index), "negative task index", "task indices start at 0")
		}
		if strings.TrimSpace(t.Address) == "" {
			return parseError(source+"["+strconv.Itoa(t.Index)+"]", "", "empty address", `write "host:port"`)
		}
	}
	return nil
}

// Jobs returns the job names, sorted, in a new slice.
func (s ClusterSpec) Jobs() []string {
	names := make([]string, len(s.jobs))
	for i, j := range s.jobs {
		names[i] = j.name
	}
	return names
}

func (s ClusterSpec) job(name string) (jobSpec, bool) {
	i, ok := slices.BinarySearchFunc(s.jobs, name, func(j jobSpec, n string) int { return cmp.Compare(j.name, n) })
	if !ok {
		return jobSpec{}, false
	}
	return s.jobs[i], true
}

// NumTasks returns the number of tasks of a job, or 0 if the job does not exist.
func (s ClusterSpec) NumTasks(job string) int {
	j, _ := s.job(job)
	return len(j.tasks)
}

// Len returns the number of tasks of all jobs.
func (s ClusterSpec) Len() int {
	n := 0
	for _, j := range s.jobs {
		n += len(j.tasks)
	}
	return n
}

// Tasks returns the tasks of a job, sorted by index, in a new slice. The error matches [ErrNoTask]
// if the job does not exist.
func (s ClusterSpec) Tasks(job string) ([]TaskAddress, error) {
	j, ok := s.job(job)
	if !ok {
		return nil, noJobError(job, s.Jobs())
	}
	return slices.Clone(j.tasks), nil
}

// Address returns the address of a task. The error matches [ErrNoTask] if the task does not exist.
func (s ClusterSpec) Address(job string, index int) (string, error) {
	j, ok := s.job(job)
	if !ok {
		return "", noJobError(job, s.Jobs())
	}
	i, ok := slices.BinarySearchFunc(j.tasks, index, func(t TaskAddress, n int) int { return cmp.Compare(t.Index, n) })
	if !ok {
		var have []string
		for _, t := range j.tasks[:min(len(j.tasks), 16)] {
			have = append(have, strconv.Itoa(t.Index))
		}
		if len(j.tasks) > 16 {
			have = append(have, "...")
		}
		return "", &errkind.Fault{Match: ErrNoTask, Reason: fmt.Sprintf("no task with index %d in job %q (indices: [%s])",
			index, truncate(job), strings.Join(have, ", "))}
	}
	return j.tasks[i].Address, nil
}

// All iterates over all tasks and their addresses, sorted by job name and index.
func (s ClusterSpec) All() iter.Seq2[Task, string] {
	return func(yield func(Task, string) bool) {
		for _, j := range s.jobs {
			for _, t := range j.tasks {
				if !yield(Task{j.name, t.Index}, t.Address) {
					return
				}
			}
		}
	}
}

// Equal reports whether both specs have the same jobs, tasks and addresses.
func (s ClusterSpec) Equal(o ClusterSpec) bool {
	return slices.EqualFunc(s.jobs, o.jobs, func(a, b jobSpec) bool {
		return a.name == b.name && slices.Equal(a.tasks, b.tasks)
	})
}

// String returns the JSON form of the spec.
func (s ClusterSpec) String() string {
	b, err := s.MarshalJSON()
	if err != nil {
		return "clusterresolver: " + err.Error()
	}
	return string(b)
}
