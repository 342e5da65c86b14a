package faultproxy

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync"
)

// Fault is a fault that the proxy injects into one request.
type Fault int

const (
	// None forwards the request and its response unchanged.
	None Fault = iota
	// Unavailable returns 503 without forwarding the request.
	Unavailable
	// TooMany returns 429 without forwarding the request.
	TooMany
	// Unauthorized returns 401 and Forbidden returns 403, without forwarding the request.
	Unauthorized
	Forbidden
	// CutRequest reads a part of the request, forwards nothing and resets the connection.
	CutRequest
	// LoseAnswer forwards the request, waits for the response, and resets the connection without
	// sending it.
	LoseAnswer
	// CutAnswer sends the response's header and half of its body, and resets the connection.
	CutAnswer
	// ShortAnswer sends half of the response's body as if it were complete.
	ShortAnswer
	// Stall sends the response's header and half of its body, and then nothing until the client
	// disconnects. If the response has no body, it sends nothing.
	Stall
	// Slow sends the response's body in small pieces with pauses.
	Slow
	// FlipRequest changes one byte in the second half of the request's body, and FlipAnswer of the
	// response's body.
	FlipRequest
	FlipAnswer
	// Twice forwards the request twice and sends the second response.
	Twice
	// Stale returns the previous response of the same GET. The first GET is forwarded normally.
	Stale
	// Rival calls the function set with OnRival before the request is forwarded.
	Rival
)

var names = map[Fault]string{None: "none", Unavailable: "unavailable", TooMany: "too many",
	Unauthorized: "unauthorized", Forbidden: "forbidden",
	CutRequest: "cut request", LoseAnswer: "lose answer", CutAnswer: "cut answer", ShortAnswer: "short answer",
	Stall: "stall", Slow: "slow",
	FlipRequest: "flip request", FlipAnswer: "flip answer", Twice: "twice", Stale: "stale", Rival: "rival"}

// String returns the fault's name.
func (f Fault) String() string {
	return cmp.Or(names[f], fmt.Sprintf("fault %d", int(f)))
}

// statuses are the statuses of faults without forwarding.
var statuses = map[Fault]int{Unavailable: http.StatusServiceUnavailable, TooMany: http.StatusTooManyRequests,
	Unauthorized: http.StatusUnauthorized, Forbidden: http.StatusForbidden}

// Chooser selects the fault of a request; n counts the requests from 1. Calls are not concurrent.
type Chooser func(r *http.Request, n int) Fault

// Random returns a chooser that injects a random one of the faults into a random fraction of the
// requests. part is the fraction, from 0 to 1. The same seed produces the same choices for the same
// order of requests.
func Random(seed uint64, part float64, faults ...Fault) Chooser {
	var mu sync.Mutex
	r := rand.New(rand.NewPCG(seed, 17))
	return func(*http.Request, int) Fault {
		mu.Lock()
		defer mu.Unlock()
		if r.Float64() >= part {
			return None
		}
		return faults[r.IntN(len(faults))]
	}
}
