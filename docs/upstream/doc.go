// Package upstream contains patches for other modules and tests that each patch applies.
package upstream
