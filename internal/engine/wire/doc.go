// Package wire maps the dtypes of GoMLX to the types of the plugin.
package wire
