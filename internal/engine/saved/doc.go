// Package saved contains the parts of a compiled step as values. Package strategy/stepfile writes and
// reads them, and package strategy transfers them to the devices.
package saved
