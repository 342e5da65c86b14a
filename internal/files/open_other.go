//go:build !unix

package files

// What the system does not have is left out.
const noFollow, nonBlock = 0, 0

func isFull(error) bool { return false }
