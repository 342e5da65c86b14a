// Package browsertest opens pages in a browser for tests.
package browsertest
