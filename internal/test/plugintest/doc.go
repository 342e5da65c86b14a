// Package plugintest finds the real PJRT plugins for tests, and opens them.
//
// [CPU] and [System] open the CPU plugin with so many devices. What they open is closed when the
// test ends, and a test that still holds something open in it fails.
//
// libtpu reads its environment once in a process. A test that compiles for a TPU therefore runs
// again in a process of its own:
//
//	if !plugintest.TPUChild(t) {
//		return // the child did the work
//	}
//	slice := plugintest.Slice(t, "v5e:4x4")
//
// A test whose plugin is missing is skipped with the reason, and fails if the environment has
// TPUSTRATEGY_REQUIRE_PLUGIN=1. A plugin that is not published for this kind of machine is a skip
// either way.
package plugintest
