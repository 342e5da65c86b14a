package gomlx

import "strings"

// moments are the ends of the names that GoMLX's Adam, AdamW, Adamax and RMSProp give to their
// state.
var moments = []string{"_1st_moment", "_2nd_moment"}

// accumulated is the scope in which GoMLX's trainer adds up gradients.
const accumulated = "acc_grads"

// StateOf returns the path of the variable whose state the variable at path is, if GoMLX keeps it:
// "/hidden/dense/weights" of "/AdamOptimizer/hidden/dense/weights_1st_moment", whatever the name of
// the optimizer's scope, and of "/acc_grads/hidden/dense/weights", where the trainer adds up
// gradients.
func StateOf(path string) (variable string, ok bool) {
	scope, rest, found := strings.Cut(strings.TrimPrefix(path, "/"), "/")
	if !found || !strings.HasPrefix(path, "/") || rest == "" {
		return "", false
	}
	for _, end := range moments {
		if of, is := strings.CutSuffix(rest, end); is && of != "" && !strings.HasSuffix(of, "/") {
			return "/" + of, true
		}
	}
	if scope == accumulated {
		return "/" + rest, true
	}
	return "", false
}
