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

// ClusterSpec says which tasks each job has and where each task listens: TensorFlow's
// tf.train.ClusterSpec. Task indices start at 0 and may have gaps. A ClusterSpec is an immutable
// value, safe for concurrent use. Its zero value is the empty cluster, of this one process.
type ClusterSpec struct {
	jobs []jobSpec // by name
}

type jobSpec struct {
	name  string
	tasks []TaskAddress // by index
}

// TaskAddress is the address of one task of a job.
type TaskAddress struct {
	// Index is the task's index in its job, from 0.
	Index int
	// Address is "host:port", or any text that a [Simple] cluster was given.
	Address string
}

// NewClusterSpec returns a spec whose jobs are dense: position i of a list holds the address of
// task i. It does not keep the map. A [*ParseError] names an empty job name or address.
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

// NewSparseClusterSpec returns a spec from task indices, which may have gaps. It does not keep the
// maps. A [*ParseError] names an empty job name or address, or a negative index.
func NewSparseClusterSpec(jobs map[string]map[int]string) (ClusterSpec, error) {
	var s ClusterSpec
	for _, name := range slices.Sorted(maps.Keys(jobs)) {
		j := jobSpec{name: name}
		for _, i := range slices.Sorted(maps.Keys(jobs[name])) {
			j.tasks = append(j.tasks, TaskAddress{i, jobs[name][i]})
		}
		if err := j.check(); err != nil {
			return ClusterSpec{}, err
		}
		s.jobs = append(s.jobs, j)
	}
	return s, s.checkSize()
}

// maxTasks bounds the tasks of all jobs, and so the jobs.
const maxTasks = 4 * maxWorkers

// checkSize refuses more tasks than any job has.
func (s ClusterSpec) checkSize() error {
	if len(s.jobs) > maxTasks || s.Len() > maxTasks {
		return parseError("cluster", "", "more than "+strconv.Itoa(maxTasks)+" tasks", "")
	}
	return nil
}

// checkAddresses returns an error if two tasks, of one job or of two, have the same address. Addresses
// are compared with the default port, and names in lower case.
func (s ClusterSpec) checkAddresses() error {
	seen := make(map[string]Task, s.Len())
	for task, address := range s.All() {
		key := addressKey(address, DefaultPort)
		if first, ok := seen[key]; ok {
			return parseError(fmt.Sprintf("cluster.%s[%d]", task.Type, task.ID), address,
				fmt.Sprintf("address given twice, also to %s[%d]", first.Type, first.ID), "give each task an address of its own")
		}
		seen[key] = task
	}
	return nil
}

func (j jobSpec) check() error {
	if strings.TrimSpace(j.name) == "" {
		return parseError("cluster", "", "empty job name", `name it, such as "worker"`)
	}
	if len(j.tasks) > maxWorkers {
		return parseError("cluster."+cut(j.name), "", "more than "+strconv.Itoa(maxWorkers)+" tasks", "")
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

// Jobs returns the job names, sorted. The slice belongs to the caller.
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

// NumTasks returns the number of a job's tasks, without gaps, and 0 if there is no such job.
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

// Tasks returns a job's tasks by ascending index, or an error that matches [ErrNoTask]. The slice belongs to the
// caller.
func (s ClusterSpec) Tasks(job string) ([]TaskAddress, error) {
	j, ok := s.job(job)
	if !ok {
		return nil, noJob(job, s.Jobs())
	}
	return slices.Clone(j.tasks), nil
}

// Address returns the address of one task, or an error that matches [ErrNoTask].
func (s ClusterSpec) Address(job string, index int) (string, error) {
	j, ok := s.job(job)
	if !ok {
		return "", noJob(job, s.Jobs())
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
		return "", &errkind.Fault{Match: ErrNoTask, Reason: fmt.Sprintf("no task with index %d in job %q (indices: [%s])", index, cut(job), strings.Join(have, ", "))}
	}
	return j.tasks[i].Address, nil
}

// All iterates over all tasks and their addresses: jobs by name, tasks by index.
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

// Equal reports whether two specs have the same jobs, tasks and addresses.
func (s ClusterSpec) Equal(o ClusterSpec) bool {
	return slices.EqualFunc(s.jobs, o.jobs, func(a, b jobSpec) bool {
		return a.name == b.name && slices.Equal(a.tasks, b.tasks)
	})
}

// String returns the JSON form.
func (s ClusterSpec) String() string {
	b, err := s.MarshalJSON()
	if err != nil {
		return "clusterresolver: " + err.Error()
	}
	return string(b)
}
