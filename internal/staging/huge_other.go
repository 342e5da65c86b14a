//go:build unix && !linux

package staging

func adviseHugePages([]byte) {}
