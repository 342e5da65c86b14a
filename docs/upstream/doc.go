// Package upstream holds the patches of this directory to the modules that they change.
package upstream
