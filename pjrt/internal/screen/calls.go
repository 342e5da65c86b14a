package screen

// recursion finds a function that reaches itself: XLA has no recursion, and its
// inliner follows one until the stack ends, as it does a long chain of calls.
func (f *moduleFacts) recursion() error {
	const onPath, done = 1, 2
	state := map[string]int{}
	calls := map[string]int{} // within a call of the function
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
					}
				}
				if calls[top.name] > maxCalls {
					return codeError("function @%s is the first of a chain of more than %d calls, which overflows the compiler's stack: inline some", top.name, maxCalls)
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
