package clusterresolver

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/tpustrategy/tpustrategy/errkind"
)

// Simple resolves to a cluster that the caller gives: TensorFlow's SimpleClusterResolver.
type Simple struct {
	// Cluster is returned as a copy; an empty Source becomes "simple".
	Cluster Cluster
}

// Name returns "simple".
func (Simple) Name() string { return "simple" }

// Resolve returns the cluster. A known task that a non-empty cluster lacks is an error that matches [ErrNoTask]. It
// does not block.
func (r Simple) Resolve(context.Context) (Cluster, error) {
	c := r.Cluster.Clone()
	if c.Source == "" {
		c.Source = r.Name()
	}
	if c.Task.Known() && c.Spec.Len() > 0 && c.Task.Type != JobEvaluator {
		if _, err := c.Spec.Address(c.Task.Type, c.Task.ID); err != nil {
			return Cluster{}, err
		}
	}
	return c, nil
}

// Union joins the specs of several resolvers: TensorFlow's UnionResolver. It takes over a job that
// only one resolver has. It concatenates the tasks of a dense job that several resolvers have, in
// the order of the resolvers. If the job has gaps in one of the specs, it merges the tasks by
// index; an index that two specs have is an error. The rest of the result, including the task,
// comes from the first resolver.
type Union struct {
	// Resolvers has at least one entry. All of them must resolve.
	Resolvers []Resolver
}

// Name returns "union".
func (Union) Name() string { return "union" }

// Resolve asks each resolver in order.
func (r Union) Resolve(ctx context.Context) (Cluster, error) {
	if len(r.Resolvers) == 0 {
		return Cluster{}, &errkind.Fault{Op: "clusterresolver: union", Reason: "no resolvers", Hint: "give at least one", Class: errkind.ValueError}
	}
	var first Cluster
	specs := make([]ClusterSpec, len(r.Resolvers))
	for i, each := range r.Resolvers {
		c, err := each.Resolve(ctx)
		if err != nil {
			op := "clusterresolver: union"
			if !strings.HasPrefix(strings.TrimPrefix(err.Error(), "clusterresolver: "), each.Name()) {
				op += ": " + each.Name()
			}
			return Cluster{}, &errkind.Fault{Op: op, Err: err}
		}
		if i == 0 {
			first = c
		}
		specs[i] = c.Spec
	}
	spec, err := MergeSpecs(specs...)
	if err != nil {
		return Cluster{}, err
	}
	first.Spec, first.Source = spec, r.Name()
	return first, nil
}

// MergeSpecs joins specs by the rules of [Union].
func MergeSpecs(specs ...ClusterSpec) (ClusterSpec, error) {
	merged := map[string]map[int]string{}
	sparse := map[string]bool{}
	for _, s := range specs {
		for _, j := range s.jobs {
			for i, t := range j.tasks {
				sparse[j.name] = sparse[j.name] || t.Index != i
			}
		}
	}
	for _, s := range specs {
		for _, j := range s.jobs {
			tasks := merged[j.name]
			if tasks == nil {
				tasks = map[int]string{}
				merged[j.name] = tasks
			}
			offset := 0
			if !sparse[j.name] {
				offset = len(tasks)
			}
			for _, t := range j.tasks {
				if had, ok := tasks[offset+t.Index]; ok {
					return ClusterSpec{}, parseError("cluster."+j.name, t.Address,
						fmt.Sprintf("task %d is given twice, also as %q", t.Index, had), "give each index once")
				}
				tasks[offset+t.Index] = t.Address
			}
		}
	}
	spec, err := NewSparseClusterSpec(merged)
	if err != nil {
		return ClusterSpec{}, err
	}
	return spec, spec.checkAddresses()
}

// Chain asks its resolvers in order and takes the first that applies. It passes over a resolver
// whose error matches [ErrNotDetected]. Any other error ends the search, because a source that is
// present but wrong must not be replaced by a guess.
type Chain struct {
	Resolvers []Resolver
}

// Attempt reports the answer of one resolver to a [Chain].
type Attempt struct {
	// Resolver is the resolver's name. Err says why it did not match, and is nil if it did.
	Resolver string
	Err      error
}

// String returns the resolver's name and its answer.
func (a Attempt) String() string {
	if a.Err == nil {
		return a.Resolver + ": matched"
	}
	// The error says "clusterresolver: name:" itself, which would be there twice.
	s := strings.TrimPrefix(a.Err.Error(), "clusterresolver: ")
	return a.Resolver + ": " + strings.TrimPrefix(s, a.Resolver+": ")
}

// ChainError reports why no resolver of a [Chain] gave a cluster. If no resolver applied, it
// matches [ErrNotDetected] and the errors of all attempts. Otherwise it matches the error that
// ended the search.
type ChainError struct {
	// Attempts holds the answers of the resolvers, in the order in which they were asked.
	Attempts []Attempt
	// Stopped is true if the last resolver applied and failed, which ended the search.
	Stopped bool
}

func (e *ChainError) Error() string {
	s := "clusterresolver: no resolver matched"
	if e.Stopped {
		s = "clusterresolver: a resolver matched but failed"
	}
	for _, a := range e.Attempts {
		s += "\n\t" + a.String()
	}
	return s
}

// Kind returns the kind of the failure that ended the search, or RuntimeError.
func (e *ChainError) Kind() errkind.Kind {
	return errkind.Or(errors.Join(e.Unwrap()...), errkind.RuntimeError)
}

// Unwrap returns the failure that ended the search, or else the reasons of all resolvers.
func (e *ChainError) Unwrap() []error {
	if e.Stopped {
		return []error{e.Attempts[len(e.Attempts)-1].Err}
	}
	errs := []error{ErrNotDetected}
	for _, a := range e.Attempts {
		errs = append(errs, a.Err)
	}
	return errs
}

// Name returns "chain".
func (Chain) Name() string { return "chain" }

// Resolve returns the first cluster found, or a [*ChainError].
func (r Chain) Resolve(ctx context.Context) (Cluster, error) {
	c, _, err := r.Explain(ctx)
	return c, err
}

// Explain returns what Resolve returns, and for each resolver that was asked why it did not match.
func (r Chain) Explain(ctx context.Context) (Cluster, []Attempt, error) {
	var attempts []Attempt
	for _, each := range r.Resolvers {
		if err := ctx.Err(); err != nil {
			attempts = append(attempts, Attempt{each.Name(), err})
			return Cluster{}, attempts, &ChainError{slices.Clone(attempts), true}
		}
		c, err := each.Resolve(ctx)
		attempts = append(attempts, Attempt{each.Name(), err})
		switch {
		case err == nil:
			return c, attempts, nil
		case !errors.Is(err, ErrNotDetected):
			return Cluster{}, attempts, &ChainError{slices.Clone(attempts), true}
		}
	}
	return Cluster{}, attempts, &ChainError{Attempts: slices.Clone(attempts)}
}
