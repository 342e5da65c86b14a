package clusterresolver

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/tpustrategy/tpustrategy/errkind"
)

// Simple is a resolver that returns a given cluster. It corresponds to TensorFlow's
// SimpleClusterResolver.
type Simple struct {
	// Cluster is the cluster to return. An empty Source is replaced by "simple".
	Cluster Cluster
}

// Name returns "simple".
func (Simple) Name() string { return "simple" }

// Resolve returns a copy of the cluster. It does not block. If the task is known, but the cluster
// is not empty and does not contain the task, the error matches [ErrNoTask].
func (r Simple) Resolve(context.Context) (Cluster, error) {
	c := r.Cluster.Clone()
	if c.Source == "" {
		c.Source = r.Name()
	}
	if c.Task.IsKnown() && c.Spec.Len() > 0 && c.Task.Type != JobEvaluator {
		if _, err := c.Spec.Address(c.Task.Type, c.Task.ID); err != nil {
			return Cluster{}, err
		}
	}
	return c, nil
}

// Union merges the clusters of several resolvers. It corresponds to TensorFlow's UnionResolver. If a
// job is in several clusters, its tasks are concatenated in the order of the resolvers. If the
// indices of the job have gaps in one of the clusters, its tasks are merged by index instead, and
// duplicate indices are an error. All other fields, including the task, are from the first resolver.
type Union struct {
	// Resolvers has at least one entry. All resolvers must succeed.
	Resolvers []Resolver
}

// Name returns "union".
func (Union) Name() string { return "union" }

// Resolve calls the resolvers in order.
func (r Union) Resolve(ctx context.Context) (Cluster, error) {
	if len(r.Resolvers) == 0 {
		return Cluster{}, &errkind.Fault{Op: "clusterresolver: union", Reason: "there are no resolvers",
			Hint: "set Resolvers", Class: errkind.ValueError}
	}
	var first Cluster
	specs := make([]ClusterSpec, len(r.Resolvers))
	for i, resolver := range r.Resolvers {
		c, err := resolver.Resolve(ctx)
		if err != nil {
			op := "clusterresolver: union"
			if !strings.HasPrefix(strings.TrimPrefix(err.Error(), "clusterresolver: "), resolver.Name()) {
				op += ": " + resolver.Name()
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

// MergeSpecs merges cluster specs in the way that [Union] does.
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
				if existing, ok := tasks[offset+t.Index]; ok {
					return ClusterSpec{}, parseError("cluster."+j.name, t.Address,
						fmt.Sprintf("task %d already has the address %q", t.Index, existing), "use each index once")
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

// Chain calls its resolvers in order and returns the result of the first one that applies. A
// resolver does not apply if its error matches [ErrNotDetected]. Any other error stops the chain,
// so that invalid input of one source is not hidden by another source.
type Chain struct {
	Resolvers []Resolver
}

// Attempt is the result of one resolver of a [Chain].
type Attempt struct {
	// Resolver is the name of the resolver. Err is its error, or nil if it resolved the cluster.
	Resolver string
	Err      error
}

// String returns the name of the resolver and its result.
func (a Attempt) String() string {
	if a.Err == nil {
		return a.Resolver + ": matched"
	}
	// Remove the prefix "clusterresolver: name: " of the error to avoid repeating the name.
	s := strings.TrimPrefix(a.Err.Error(), "clusterresolver: ")
	return a.Resolver + ": " + strings.TrimPrefix(s, a.Resolver+": ")
}

// ChainError reports that no resolver of a [Chain] returned a cluster. If the error of a resolver
// stopped the chain, the ChainError wraps this error. Otherwise it matches [ErrNotDetected] and
// wraps the errors of all resolvers.
type ChainError struct {
	// Attempts lists the results of the resolvers, in the order of the calls.
	Attempts []Attempt
	// Stopped is true if the error of the last resolver stopped the chain.
	Stopped bool
}

// Error returns a message with one line for each resolver.
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

// Kind returns the kind of the error that stopped the chain, or RuntimeError.
func (e *ChainError) Kind() errkind.Kind {
	return errkind.KindOr(errors.Join(e.Unwrap()...), errkind.RuntimeError)
}

// Unwrap returns the error that stopped the chain, or the errors of all resolvers.
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

// Resolve returns the cluster of the first resolver that applies, or a [*ChainError].
func (r Chain) Resolve(ctx context.Context) (Cluster, error) {
	c, _, err := r.ResolveAttempts(ctx)
	return c, err
}

// ResolveAttempts is like Resolve, but also returns the results of all resolvers that were called.
func (r Chain) ResolveAttempts(ctx context.Context) (Cluster, []Attempt, error) {
	var attempts []Attempt
	for _, resolver := range r.Resolvers {
		if err := ctx.Err(); err != nil {
			attempts = append(attempts, Attempt{resolver.Name(), err})
			return Cluster{}, attempts, &ChainError{slices.Clone(attempts), true}
		}
		c, err := resolver.Resolve(ctx)
		attempts = append(attempts, Attempt{resolver.Name(), err})
		switch {
		case err == nil:
			return c, attempts, nil
		case !errors.Is(err, ErrNotDetected):
			return Cluster{}, attempts, &ChainError{slices.Clone(attempts), true}
		}
	}
	return Cluster{}, attempts, &ChainError{Attempts: slices.Clone(attempts)}
}
