// Package upstream contains only tests. They apply the patches in docs/upstream to copies of the
// patched modules and run the test of each patch.
package upstream
