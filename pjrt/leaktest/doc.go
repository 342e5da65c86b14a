// Package leaktest makes a test fail for plugin objects that it leaves behind, or that only the
// garbage collector ended.
package leaktest
