// Package plugintest finds PJRT plugins for tests and opens them.
//
// [CPU] and [System] open the CPU plugin with a given number of devices. These clients are closed
// when the test ends. The test fails if a buffer or a program is still open then.
//
// libtpu reads its environment once per process. A test that compiles for a TPU therefore runs again
// in a child process:
//
//	if !plugintest.TPUChild(t) {
//		return // the child did the work
//	}
//	slice := plugintest.Slice(t, "v5e:4x4")
//
// If a plugin is missing, the test is skipped. If the environment has TPUSTRATEGY_REQUIRE_PLUGIN=1,
// the test fails instead, unless the plugin is not published for this platform.
package plugintest
