package faultproxy

import (
	"bytes"
	"errors"
	"io"
	"maps"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"sync"
	"time"
)

// Proxy is an HTTP server that forwards requests to another server. The caller must close it.
type Proxy struct {
	target   *url.URL
	listener net.Listener
	server   *http.Server
	client   *http.Transport

	mu       sync.Mutex
	choose   Chooser
	rival    func(*http.Request)
	requests int
	done     map[Fault]int
	methods  map[string]int
	last     map[string]*answer // last response of each GET with a small body
}

type answer struct {
	status int
	header http.Header
	body   []byte
}

// Listen opens a port for a proxy, which serves requests after [Proxy.Forward] is called. Use it if
// the server must know the proxy's address before the server starts.
func Listen() (*Proxy, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p := &Proxy{listener: l, client: &http.Transport{DisableCompression: true, MaxIdleConnsPerHost: 64},
		done: map[Fault]int{}, methods: map[string]int{}, last: map[string]*answer{}}
	p.server = &http.Server{Handler: p, ReadHeaderTimeout: time.Minute}
	return p, nil
}

// Start opens a proxy in front of the server at a URL.
func Start(target string) (*Proxy, error) {
	p, err := Listen()
	if err != nil {
		return nil, err
	}
	if err := p.Forward(target); err != nil {
		return nil, errors.Join(err, p.Close())
	}
	return p, nil
}

// Forward starts to forward requests to the server at a URL. It must be called once.
func (p *Proxy) Forward(target string) error {
	u, err := url.Parse(target)
	if err != nil {
		return err
	}
	p.target = u
	go p.server.Serve(p.listener) //nolint:errcheck // returns after Close
	return nil
}

// Host returns the proxy's address, "127.0.0.1:port".
func (p *Proxy) Host() string { return p.listener.Addr().String() }

// URL returns the proxy's address as a URL.
func (p *Proxy) URL() string { return "http://" + p.Host() }

// Close stops the proxy and closes all connections.
func (p *Proxy) Close() error {
	err := p.server.Close()
	p.client.CloseIdleConnections()
	if closed := p.listener.Close(); !errors.Is(closed, net.ErrClosed) {
		err = errors.Join(err, closed)
	}
	return err
}

// Choose sets the chooser of faults and resets the count of requests. With a nil chooser, all
// requests are forwarded without faults.
func (p *Proxy) Choose(c Chooser) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.choose, p.requests = c, 0
}

// OnRival sets the function that [Rival] calls. It is called without holding locks of the proxy.
func (p *Proxy) OnRival(f func(*http.Request)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.rival = f
}

// Done returns the number of times each fault was injected since the proxy started.
func (p *Proxy) Done() map[Fault]int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return maps.Clone(p.done)
}

// Methods returns the number of requests by method since the last call of Methods.
func (p *Proxy) Methods() map[string]int {
	p.mu.Lock()
	defer p.mu.Unlock()
	m := p.methods
	p.methods = map[string]int{}
	return m
}

func (p *Proxy) next(r *http.Request) (Fault, func(*http.Request)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.requests++
	p.methods[r.Method]++
	f := None
	if p.choose != nil {
		f = p.choose(r, p.requests)
	}
	p.done[f]++
	return f, p.rival
}

// ServeHTTP forwards a request to the server, and injects the fault that the chooser selects.
func (p *Proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f, rival := p.next(r)
	if code := statuses[f]; code != 0 {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(code)
		_, _ = io.WriteString(w, `{"error":{"code":`+strconv.Itoa(code)+`,"message":"`+f.String()+`"}}`)
		return
	}
	if f == CutRequest {
		_, _ = io.CopyN(io.Discard, r.Body, max(r.ContentLength/2, 1))
		reset(w)
		return
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		reset(w)
		return
	}
	if f == FlipRequest && len(body) > 0 {
		body[len(body)*3/4] ^= 0x10
	}
	if f == Rival && rival != nil {
		rival(r)
	}
	key := r.URL.String()
	a := (*answer)(nil)
	if f == Stale && r.Method == http.MethodGet {
		p.mu.Lock()
		a = p.last[key]
		p.mu.Unlock()
	}
	if a == nil {
		a, err = p.forward(r, body)
	}
	if err == nil && f == Twice {
		a, err = p.forward(r, body)
	}
	if err != nil {
		reset(w)
		return
	}
	if r.Method == http.MethodGet && len(a.body) < 1<<20 && f != Stale {
		p.mu.Lock()
		p.last[key] = a
		p.mu.Unlock()
	}
	give(w, r, a, f)
}

// forward forwards a request and reads the complete response.
func (p *Proxy) forward(r *http.Request, body []byte) (*answer, error) {
	out := r.Clone(r.Context())
	out.URL.Scheme, out.URL.Host = p.target.Scheme, p.target.Host
	out.RequestURI = ""
	out.Body, out.ContentLength = http.NoBody, int64(len(body))
	if len(body) > 0 {
		out.Body = io.NopCloser(bytes.NewReader(body))
	}
	resp, err := p.client.RoundTrip(out)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, err
	}
	return &answer{resp.StatusCode, resp.Header, data}, nil
}
