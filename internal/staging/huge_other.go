//go:build unix && !linux

package staging

func huge([]byte) {}
