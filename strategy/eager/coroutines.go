package eager

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"sync/atomic"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/internal/engine"
	"github.com/tpustrategy/tpustrategy/internal/engine/fault"
	"github.com/tpustrategy/tpustrategy/strategy"
)

// The replicas of eager code are coroutines: goroutines of which only one runs at a time, in replica
// order, until it ends or makes a collective call. Replica code therefore needs no locks and is
// deterministic. A process runs the coroutines of its own replicas.

// ErrJoin reports that the replicas of a run did not make the same collective calls: a replica
// ended or made a different call while others waited in a collective call.
var ErrJoin = errkind.New(errkind.RuntimeError,
	"strategy: the replicas made a different number of collective calls (reductions, variable writes, MergeCall)")

// newJoinError reports that the replicas made different collective calls. calls has the current
// call of each replica, or "" for a replica whose function has returned.
func newJoinError(calls []string) error {
	at := make([]string, len(calls))
	for r, call := range calls {
		at[r] = fmt.Sprintf("replica %d at %s", r, cmp.Or(call, "the end"))
	}
	return &errkind.Fault{Match: ErrJoin, Reason: strings.Join(at, ", "), Hint: "make the same calls on every replica"}
}

// collectiveCall is a call that all replicas must make together, as one replica requests it.
type collectiveCall struct {
	call string
	// subject is the variable, the function or the options of the call, or nil. It is comparable
	// and must be equal on all replicas, because the request of one replica runs for all of them.
	subject any
	arg     any
	// run executes the call for all replicas. args and results are indexed by replica.
	run func(args []any) ([]any, error)
}

type answer struct {
	value any
	err   error
}

type outcome struct {
	request *collectiveCall // nil at the end
	result  any
	err     error
}

// coroutine runs the code of one replica. It pauses at each collective call.
type coroutine struct {
	resume chan answer
	yield  chan outcome
	// running reports whether the replica's own code is running.
	running atomic.Bool
	ended   bool
}

// call passes a collective call to runReplicas and waits for its result.
func (c *coroutine) call(r *collectiveCall) (any, error) {
	if !c.running.CompareAndSwap(true, false) {
		return nil, &strategy.Error{Match: strategy.ErrContext, Op: "strategy: " + r.call,
			Reason: "the replica's code is not running: it has ended, or waits in MergeCall",
			Hint:   "use the replica context in the replica's own code only"}
	}
	c.yield <- outcome{request: r}
	a := <-c.resume
	return a.value, a.err
}

// step runs the replica's code until its next collective call or until its function returns.
func (c *coroutine) step(a answer) outcome {
	c.running.Store(true)
	c.resume <- a
	out := <-c.yield
	if out.request == nil {
		c.ended = true
	}
	return out
}

// runReplicas runs fn for each of n replicas and returns the result of each replica. A collective
// call has width arguments. If width is greater than n, the remaining arguments are copies of the
// argument of replica n-1.
//
// In a job with several processes, a call for all replicas runs fn only for the replicas of this
// process. For the other replicas it returns the results that [Extended.exchange] receives from the
// other processes.
func (e *Extended) runReplicas(ctx context.Context, n, width int, fn func(c *coroutine, replica int) (any,
	error)) ([]any, error) {
	ids := make([]int, n)
	for r := range ids {
		ids[r] = r
	}
	several := e.strategy.NumProcesses() > 1 && n == e.strategy.NumReplicasInSync()
	if several {
		ids = e.localReplicas()
	}
	all := make([]*coroutine, len(ids))
	for i, r := range ids {
		c := &coroutine{resume: make(chan answer), yield: make(chan outcome)}
		all[i] = c
		go func() {
			if a := <-c.resume; a.err != nil { // never started
				c.yield <- outcome{err: a.err}
				return
			}
			out := outcome{err: fault.New(errkind.RuntimeError, fmt.Sprintf("replica %d", r),
				"return from the replica's function", "it ended its goroutine")}
			defer func() {
				c.running.Store(false)
				c.yield <- out
			}()
			result, err := errkind.CatchPanic(fmt.Sprintf("strategy: replica %d", r),
				func() (any, error) { return fn(c, r) })
			out = outcome{result: result, err: err}
		}()
	}
	answers := make([]answer, len(ids))
	for {
		requests := make([]*collectiveCall, len(ids))
		passed, ends := make([]any, n), 0
		var failed error
		for i, c := range all {
			if failed != nil {
				break
			}
			out := c.step(answers[i])
			if requests[i] = out.request; out.request == nil {
				passed[ids[i]], failed = out.result, out.err
				ends++
			} else {
				passed[ids[i]] = out.request.arg
			}
		}
		calls := callsOf(requests)
		if failed == nil && !several {
			failed = checkSameCall(calls)
		}
		if failed == nil {
			failed = checkSubjects(ids, requests)
		}
		if failed == nil && ends < len(ids) {
			failed = ctx.Err()
		}
		if several {
			failed = e.exchange(ctx, ids, calls, failed, passed)
		}
		switch {
		case failed != nil:
			cancelAll(all, failed)
			return nil, failed
		case ends == len(ids):
			return passed, nil
		}
		args := make([]any, width)
		for r := range args {
			args[r] = passed[min(r, n-1)]
		}
		values, err := errkind.CatchPanic("strategy: "+requests[0].call,
			func() ([]any, error) { return requests[0].run(args) })
		if err == nil && several {
			setOrigin(fmt.Sprintf("call %d ", engine.Internal(e.strategy).NextCallNumber()), values[ids[0]])
		}
		for i, r := range ids {
			answers[i] = answer{err: err}
			if err == nil {
				answers[i].value = values[r]
			}
		}
	}
}

// callsOf returns the name of each replica's collective call, or "" for a replica whose function
// has returned.
func callsOf(requests []*collectiveCall) []string {
	calls := make([]string, len(requests))
	for i, q := range requests {
		if q != nil {
			calls[i] = q.call
		}
	}
	return calls
}

// checkSameCall returns an error unless all replicas make the same collective call.
func checkSameCall(calls []string) error {
	for _, call := range calls {
		if call != calls[0] {
			return newJoinError(calls)
		}
	}
	return nil
}

// checkSubjects returns an error if replicas of this process make the same collective call for
// different variables, functions or options. ids has the indices of these replicas.
func checkSubjects(ids []int, requests []*collectiveCall) error {
	first := requests[0]
	for i, q := range requests {
		if q != nil && first != nil && q.call == first.call && q.subject != first.subject {
			return &errkind.Fault{Match: ErrJoin, Op: "strategy: " + q.call,
				Reason: fmt.Sprintf("replicas %d and %d use different variables, functions or options in the same call", ids[0],
					ids[i]),
				Hint: "pass the same variable, function or options on every replica"}
		}
	}
	return nil
}

// cancelAll stops the replicas that are still running: each of their collective calls returns err
// until their functions return.
func cancelAll(all []*coroutine, err error) {
	for _, c := range all {
		for !c.ended {
			c.step(answer{err: err})
		}
	}
}
