// Package faultproxy stands between an HTTP client and a server, and does to requests what networks
// and overloaded services do to them: it refuses them, cuts them, delays them, loses their answers,
// sends them twice, changes their bytes, and answers from an older state.
//
// A test starts a [Proxy] in front of the server, gives the client the proxy's address, and says by
// a [Chooser] what happens to which request:
//
//	proxy, err := faultproxy.Start(server.URL())
//	proxy.Choose(func(r *http.Request, n int) faultproxy.Fault {
//		if r.Method == http.MethodPost && n == 3 {
//			return faultproxy.LoseAnswer
//		}
//		return faultproxy.None
//	})
//
// [Random] chooses from a list with a seed, so that a run can be repeated. The proxy counts what it
// forwarded and what it did, and is safe for concurrent use.
package faultproxy
