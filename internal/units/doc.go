// Package units formats byte counts, quantities and durations with their units for messages and reports.
package units
