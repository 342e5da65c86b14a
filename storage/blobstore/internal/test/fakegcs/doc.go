// Package fakegcs starts a fake Google Cloud Storage server for tests, behind a proxy that injects
// faults. The server stores objects in memory.
//
//	s := fakegcs.Start(t, "bucket")
//	store := s.Open(t, "gs://bucket/run", blobstore.Options{})
//	s.Proxy.Choose(faultproxy.Random(1, 0.2, faultproxy.Unavailable, faultproxy.LoseAnswer))
package fakegcs
