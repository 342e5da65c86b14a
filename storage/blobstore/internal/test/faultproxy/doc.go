// Package faultproxy is a proxy between an HTTP client and a server that injects faults of networks
// and overloaded services. It can reject, truncate, delay, duplicate or corrupt requests and
// responses, drop responses, and return stale responses.
//
// A test starts a [Proxy] in front of the server, passes the proxy's address to the client, and
// selects a fault for each request with a [Chooser]:
//
//	proxy, err := faultproxy.Start(server.URL())
//	proxy.Choose(func(r *http.Request, n int) faultproxy.Fault {
//		if r.Method == http.MethodPost && n == 3 {
//			return faultproxy.LoseAnswer
//		}
//		return faultproxy.None
//	})
//
// [Random] selects faults at random with a seed, so that a run can be repeated. The proxy counts
// requests and faults, and is safe for concurrent use.
package faultproxy
