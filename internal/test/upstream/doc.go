// Package upstream contains only tests. They apply the patches in docs/upstream to the modules that the
// patches change, and run the test of each patch.
package upstream
