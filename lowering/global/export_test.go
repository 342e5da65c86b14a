package global

// Moved returns how often a value went from one layout to another.
func Moved(b *Backend) int64 { return b.moved.Load() }
