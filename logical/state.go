package logical

import "strings"

// moments are the ends of the names that GoMLX's Adam, AdamW, Adamax and RMSProp give to their
// state.
var moments = []string{"_1st_moment", "_2nd_moment"}

// accumulated is the scope in which GoMLX's trainer adds up gradients.
const accumulated = "acc_grads"

// StateOf returns the path of the variable whose state is kept at path, or "". Optimizers keep what
// belongs to a variable below its own path, such as "/AdamOptimizer/hidden/weights_1st_moment": of
// the parts of path that begin with a slash behind its first, it is the longest that is a variable.
//
// Without variable, where the variables are not known, it goes by the names that GoMLX gives: those of
// moments, whatever the optimizer's scope, and of "/acc_grads/hidden/weights", where the trainer adds
// up gradients.
func StateOf(path string, variable func(path string) bool) (of string) {
	if variable == nil {
		return stateByName(path)
	}
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

func stateByName(path string) string {
	scope, rest, found := strings.Cut(strings.TrimPrefix(path, "/"), "/")
	if !found || !strings.HasPrefix(path, "/") || rest == "" {
		return ""
	}
	for _, end := range moments {
		if of, is := strings.CutSuffix(rest, end); is && of != "" && !strings.HasSuffix(of, "/") {
			return "/" + of
		}
	}
	if scope == accumulated {
		return "/" + rest
	}
	return ""
}
