// Package units formats numbers of bytes, rates and times with their units.
package units
