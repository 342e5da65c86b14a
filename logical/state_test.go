package logical_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/tpustrategy/tpustrategy/logical"
)

func TestStateOf(t *testing.T) {
	variables := map[string]bool{"/weights": true, "/hidden/weights": true, "/hidden/weights_2": true, "/AdamOptimizer/own": true}
	for path, want := range map[string]string{
		"/AdamOptimizer/weights_1st_moment":          "/weights",
		"/AdamOptimizer/hidden/weights_1st_moment":   "/hidden/weights",
		"/AdamOptimizer/hidden/weights_2_2nd_moment": "/hidden/weights_2",
		"/a/b/hidden/weights/velocity":               "/hidden/weights",
		"/averages/step/hidden/weights":              "/hidden/weights",
		"/hidden/weights":                            "/weights", // not of itself
		"/weights":                                   "",
		"/AdamOptimizer/own":                         "",
		"/global_step":                               "",
		"":                                           "",
	} {
		assert.Equal(t, want, logical.StateOf(path, func(path string) bool { return variables[path] }), path)
	}
}
