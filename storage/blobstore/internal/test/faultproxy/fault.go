package faultproxy

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync"
)

// Fault is what happens to one request.
type Fault int

const (
	// None forwards the request and its answer as they are.
	None Fault = iota
	// Unavailable answers 503 and forwards nothing.
	Unavailable
	// TooMany answers 429 and forwards nothing.
	TooMany
	// Unauthorized answers 401, and Forbidden 403, and both forward nothing.
	Unauthorized
	Forbidden
	// CutRequest reads a part of the request, forwards nothing and resets the connection.
	CutRequest
	// LoseAnswer forwards the request, waits for the answer, and resets the connection instead of
	// giving it.
	LoseAnswer
	// CutAnswer gives the answer's head and half of its body, and resets the connection.
	CutAnswer
	// ShortAnswer gives half of the answer's body as if that were all of it.
	ShortAnswer
	// Stall gives the answer's head and half of its body, and then nothing until the client goes;
	// nothing at all of an answer without a body.
	Stall
	// Slow gives the answer's body in small pieces with pauses.
	Slow
	// FlipRequest changes one byte in the last half of the request's body, FlipAnswer one of the
	// answer's.
	FlipRequest
	FlipAnswer
	// Twice forwards the request twice and gives the second answer.
	Twice
	// Stale answers a GET with what the same GET got the time before; the first is not changed.
	Stale
	// Rival calls the proxy's rival before the request is forwarded.
	Rival
)

var names = map[Fault]string{None: "none", Unavailable: "unavailable", TooMany: "too many", Unauthorized: "unauthorized", Forbidden: "forbidden",
	CutRequest: "cut request", LoseAnswer: "lose answer", CutAnswer: "cut answer", ShortAnswer: "short answer", Stall: "stall", Slow: "slow",
	FlipRequest: "flip request", FlipAnswer: "flip answer", Twice: "twice", Stale: "stale", Rival: "rival"}

// String returns the fault's name.
func (f Fault) String() string {
	return cmp.Or(names[f], fmt.Sprintf("fault %d", int(f)))
}

// statuses are the codes that the proxy answers by itself.
var statuses = map[Fault]int{Unavailable: http.StatusServiceUnavailable, TooMany: http.StatusTooManyRequests,
	Unauthorized: http.StatusUnauthorized, Forbidden: http.StatusForbidden}

// Chooser says what happens to a request; n counts the requests from 1. Calls come one at a time.
type Chooser func(r *http.Request, n int) Fault

// Random returns a chooser that takes one of the faults for a part of all requests, between 0 and 1.
// The same seed gives the same choices for the same order of requests.
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
