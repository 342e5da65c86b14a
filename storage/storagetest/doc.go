// Package storagetest tests the contract of storage.Store, for packages that implement it.
//
//	func TestStore(t *testing.T) {
//		storagetest.Run(t, func(t *testing.T) storage.Store { return openEmpty(t) })
//	}
package storagetest
