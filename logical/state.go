package logical

// StateOf returns the path of the variable whose state is kept at path, or "". Optimizers keep what
// belongs to a variable below its own path, such as "/AdamOptimizer/hidden/weights_1st_moment": of
// the parts of path that begin with a slash behind its first, it is the longest that is a variable.
func StateOf(path string, variable func(path string) bool) (of string) {
	for i := 1; i < len(path); i++ {
		if path[i] != '/' {
			continue
		}
		for end := len(path); end > i+max(1, len(of)); end-- {
			if variable(path[i:end]) {
				of = path[i:end]
				break
			}
		}
	}
	return of
}
