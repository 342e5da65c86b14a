// Command bench measures the module on the XLA CPU plugin. It prints one JSON object per line:
// name, devices, us (median time in microseconds), cpu_us (processor time), allocs (Go heap
// allocations per operation), and floor_us if there is a baseline, which is measured in the same
// run. docs/benchmarks.md describes the benchmarks.
//
//	go run ./internal/test/bench            all benchmarks
//	go run ./internal/test/bench add_one    benchmarks whose name contains a word
//
// Exit codes: 0 success, 1 a benchmark failed, 2 invalid usage, 130 interrupted, 143 terminated. An
// interrupted run has printed the lines of the finished benchmarks.
package main
