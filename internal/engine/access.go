package engine

// Access gives the other packages of this module access to the internal methods T of a type, which are
// not part of its exported API. The type embeds an unexported alias of Access, so its method is not
// documented, and only [Internal] can call the method:
//
//	type strategyAccess = engine.Access[internalStrategy]
//
//	type TPUStrategy struct {
//		strategyAccess
//	}
//
// T usually holds a pointer to the value that embeds it. The zero Access has the zero T.
type Access[T any] struct{ internal T }

// NewAccess returns an Access to internal.
func NewAccess[T any](internal T) Access[T] { return Access[T]{internal} }

func (a *Access[T]) access() T { return a.internal }

// Accessible is implemented by types that embed an [Access].
type Accessible[T any] interface{ access() T }

// Internal returns the internal methods of x, which must not be a nil pointer. It does not allocate.
func Internal[T any](x Accessible[T]) T { return x.access() }
