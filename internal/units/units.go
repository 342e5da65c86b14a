package units

import (
	"fmt"
	"time"
)

// Bytes formats a number of bytes with a binary prefix, such as "1.50 MiB".
func Bytes(n int64) string {
	for _, unit := range []struct {
		size int64
		name string
	}{{1 << 40, "TiB"}, {1 << 30, "GiB"}, {1 << 20, "MiB"}, {1 << 10, "KiB"}} {
		if n >= unit.size {
			return fmt.Sprintf("%.2f %s", float64(n)/float64(unit.size), unit.name)
		}
	}
	return fmt.Sprintf("%d B", n)
}

// SI formats a quantity with a decimal prefix and its unit, such as "197.00 TFLOP/s".
func SI(x float64, unit string) string {
	for _, prefix := range []struct {
		size float64
		name string
	}{{1e18, "E"}, {1e15, "P"}, {1e12, "T"}, {1e9, "G"}, {1e6, "M"}, {1e3, "k"}} {
		if x >= prefix.size {
			return fmt.Sprintf("%.2f %s%s", x/prefix.size, prefix.name, unit)
		}
	}
	return fmt.Sprintf("%.0f %s", x, unit)
}

// Seconds formats a duration in seconds as seconds, milliseconds or microseconds, such as "1.25 ms".
func Seconds(s float64) string {
	switch {
	case s >= 1:
		return fmt.Sprintf("%.2f s", s)
	case s >= 1e-3:
		return fmt.Sprintf("%.2f ms", s*1e3)
	}
	return fmt.Sprintf("%.1f us", s*1e6)
}

// Duration formats a duration rounded to seconds, such as "1m30s".
func Duration(d time.Duration) string { return d.Round(time.Second).String() }
