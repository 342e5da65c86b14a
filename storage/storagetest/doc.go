// Package storagetest is the contract of a storage.Store as a test, for the packages that implement
// one.
//
//	func TestStore(t *testing.T) {
//		storagetest.Run(t, func(t *testing.T) storage.Store { return openEmpty(t) })
//	}
package storagetest
