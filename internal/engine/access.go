package engine

// Access gives the other packages of this module access to methods of a type that are not part of
// its exported API. T is an interface or struct with these methods. The type embeds an unexported
// alias of Access, and [Internal] returns T:
//
//	type strategyAccess = engine.Access[internalStrategy]
//
//	type TPUStrategy struct {
//		strategyAccess
//	}
//
// T usually contains a pointer to the value that embeds it. The zero Access has the zero T.
type Access[T any] struct{ internal T }

// NewAccess returns an Access to internal.
func NewAccess[T any](internal T) Access[T] { return Access[T]{internal} }

func (a *Access[T]) access() T { return a.internal }

// Accessible is implemented by types that embed an [Access], and is the parameter type of
// [Internal].
type Accessible[T any] interface{ access() T }

// Internal returns the internal methods of x, which must not be a nil pointer. It does not
// allocate.
func Internal[T any](x Accessible[T]) T { return x.access() }
