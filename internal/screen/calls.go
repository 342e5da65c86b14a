package screen

import "strings"

// maxAllCalls bounds the calls of a program in total, as compilers inline them.
const maxAllCalls = 1 << 20

// missing finds a function that a custom call names and that there is not.
func (f *checker) missing() error {
	for _, name := range f.called {
		if !f.defined[name] {
			return codeError("a custom call names @%s among its called_computations, and there is no such function, which crashes the compiler: define it, or leave it out", name)
		}
	}
	return nil
}

// checkPermute looks at the pairs of a collective_permute: compilers believe them where there is
// one replica, or one partition.
func (f *checker) checkPermute(op *Operation) error {
	pairs, ok := f.numbers(op, "source_target_pairs")
	if text := f.resolve(op.get("source_target_pairs")); !ok || text != "" && !strings.HasPrefix(text, "dense<") {
		return nil
	}
	limit, of := int64(max(f.Replicas, 1)), "replica"
	if _, channel := op.has("channel_handle"); channel {
		limit, of = int64(max(f.Partitions, 1)), "partition"
	}
	for _, id := range pairs {
		if id >= limit {
			return codeError("it is over %s %d, and there are %d: with a channel_handle its numbers are partitions, without one replicas", of, id, limit)
		}
	}
	return nil
}

// recursion finds a function that reaches itself: XLA has no recursion, and its inliner follows one
// until the stack ends, as it does a long chain of calls.
func (f *checker) recursion() error {
	const onPath, done = 1, 2
	state := map[string]int{}
	calls := map[string]int{} // within a call of the function, one in another
	all := map[string]int{}   // and in total
	type frame struct {
		name string
		next int
	}
	for _, root := range f.order {
		if state[root] == done {
			continue
		}
		state[root] = onPath
		for stack := []frame{{root, 0}}; len(stack) > 0; {
			top := &stack[len(stack)-1]
			refs := f.refs[top.name]
			if top.next == len(refs) {
				state[top.name] = done
				for _, callee := range refs {
					if f.defined[callee] {
						calls[top.name] = max(calls[top.name], calls[callee]+1)
						all[top.name] = min(all[top.name]+all[callee]+1, maxAllCalls+1)
					}
				}
				if calls[top.name] > maxCalls {
					return codeError("function @%s is the first of a chain of more than %d calls, which overflows the compiler's stack: inline some", top.name, maxCalls)
				}
				if all[top.name] > maxAllCalls {
					return codeError("function @%s is more than %d calls once they are inlined, which no compiler ends with: use stablehlo.while", top.name, maxAllCalls)
				}
				stack = stack[:len(stack)-1]
				continue
			}
			callee := refs[top.next]
			top.next++
			switch {
			case state[callee] == onPath:
				return codeError("function @%s calls itself by way of @%s; XLA has no recursion, use stablehlo.while", callee, top.name)
			case state[callee] == 0 && f.defined[callee]:
				state[callee] = onPath
				stack = append(stack, frame{callee, 0})
			}
		}
	}
	return nil
}
