// Package browsertest shows pages in a browser, for tests that look at them.
package browsertest
