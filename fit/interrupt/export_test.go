package interrupt

// Every returns the number of steps between two exchanges.
func Every(a *Agreement) int64 { return a.interval }
