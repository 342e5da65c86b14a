package peers

import (
	"context"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/storage"
)

// newHandler returns an HTTP handler for the objects of a store. /o/NAME supports GET with ranges,
// HEAD, PUT (with If-None-Match: * for IfAbsent) and DELETE. GET /l?prefix=PREFIX lists objects.
func newHandler(local storage.Store) http.Handler {
	mux := http.NewServeMux()
	fail := func(w http.ResponseWriter, err error) {
		code := http.StatusInternalServerError
		switch {
		case errors.Is(err, storage.ErrNotExist):
			code = http.StatusNotFound
		case errors.Is(err, storage.ErrExists):
			code = http.StatusPreconditionFailed
		}
		http.Error(w, err.Error(), code)
	}
	mux.HandleFunc("GET /o/{name...}", func(w http.ResponseWriter, r *http.Request) {
		o, err := local.Open(r.Context(), r.PathValue("name"))
		if err != nil {
			fail(w, err)
			return
		}
		defer o.Close()
		// ServeContent handles ranges, lengths and HEAD.
		http.ServeContent(w, r, "", time.Time{}, io.NewSectionReader(storage.ReaderAt(r.Context(), o), 0, o.Size()))
	})
	mux.HandleFunc("PUT /o/{name...}", func(w http.ResponseWriter, r *http.Request) {
		opts := storage.PutOptions{IfAbsent: r.Header.Get("If-None-Match") == "*", Size: max(0, r.ContentLength)}
		err := local.Put(r.Context(), r.PathValue("name"), opts, func(dst io.Writer) error {
			_, err := io.Copy(dst, r.Body)
			return err
		})
		if err != nil {
			fail(w, err)
		}
	})
	mux.HandleFunc("DELETE /o/{name...}", func(w http.ResponseWriter, r *http.Request) {
		if err := local.Remove(r.Context(), r.PathValue("name")); err != nil {
			fail(w, err)
		}
	})
	mux.HandleFunc("GET /l", func(w http.ResponseWriter, r *http.Request) {
		all, err := local.List(r.Context(), r.FormValue("prefix"))
		if err != nil {
			fail(w, err)
			return
		}
		_ = json.NewEncoder(w).Encode(all) // the client detects a truncated listing
	})
	return mux
}

func requireSecret(secret string, h http.Handler) http.Handler {
	want := []byte("Bearer " + secret)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if subtle.ConstantTimeCompare([]byte(r.Header.Get("Authorization")), want) != 1 {
			http.Error(w, "wrong secret: this host belongs to another job", http.StatusForbidden)
			return
		}
		h.ServeHTTP(w, r)
	})
}

func objectURLPath(name string) string { return (&url.URL{Path: "/o/" + name}).EscapedPath() }

// peer accesses the objects of another process over HTTP.
type peer struct {
	process int
	name    string
	secret  string
	client  *http.Client
}

// newPeer returns a peer that connects to the first reachable address of the host.
func newPeer(h hostInfo, process int, secret string, timeout time.Duration) peer {
	dialer := &net.Dialer{Timeout: timeout}
	t := &http.Transport{ResponseHeaderTimeout: timeout, IdleConnTimeout: timeout, DisableCompression: true,
		DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
			ctx, cancel := context.WithTimeout(ctx, timeout)
			defer cancel()
			var errs []error
			for i, address := range h.Addresses {
				// Divide the remaining time between the remaining addresses.
				attempt := *dialer
				if deadline, ok := ctx.Deadline(); ok {
					attempt.Timeout = time.Until(deadline) / time.Duration(len(h.Addresses)-i)
				}
				c, err := attempt.DialContext(ctx, network, address)
				if err == nil {
					return c, nil
				}
				errs = append(errs, err)
			}
			return nil, errors.Join(errs...)
		}}
	return peer{process: process, name: h.Name, secret: secret, client: &http.Client{Transport: t}}
}

// send sends a request and returns the response. It converts an error status to an error. header
// alternates names and values.
func (p *peer) send(ctx context.Context, method, target string, body io.Reader, header ...string) (*http.Response,
	error) {
	fail := func(err error) (*http.Response, error) {
		return nil, &errkind.Fault{Op: fmt.Sprintf("process %d on %s", p.process, p.name), Err: err,
			Class: errkind.KindOr(err, errkind.UnavailableError)}
	}
	r, err := http.NewRequestWithContext(ctx, method, "http://peer-"+strconv.Itoa(p.process)+target, body)
	if err != nil {
		return fail(err)
	}
	r.Header.Set("Authorization", "Bearer "+p.secret)
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	a, err := p.client.Do(r)
	if err != nil {
		return fail(err)
	}
	if a.StatusCode < 300 {
		return a, nil
	}
	defer a.Body.Close()
	switch a.StatusCode {
	case http.StatusNotFound:
		return nil, storage.ErrNotExist
	case http.StatusPreconditionFailed:
		return nil, storage.ErrExists
	case http.StatusRequestedRangeNotSatisfiable:
		return nil, io.ErrUnexpectedEOF
	}
	text, _ := io.ReadAll(io.LimitReader(a.Body, 1<<10))
	return fail(fmt.Errorf("%s: %s", a.Status, strings.TrimSpace(string(text))))
}

func (p *peer) Put(ctx context.Context, name string, opts storage.PutOptions, write func(io.Writer) error) error {
	body, pipe := io.Pipe()
	wrote := make(chan error, 1)
	go func() {
		err := write(pipe)
		_ = pipe.CloseWithError(err)
		wrote <- err
	}()
	var header []string
	if opts.IfAbsent {
		header = []string{"If-None-Match", "*"}
	}
	a, err := p.send(ctx, http.MethodPut, objectURLPath(name), body, header...)
	_ = body.CloseWithError(errResponded)
	if failed := <-wrote; failed != nil && !errors.Is(failed, errResponded) && !errors.Is(failed, io.ErrClosedPipe) {
		err = failed // the error of write
	}
	if a != nil {
		err = errors.Join(err, a.Body.Close())
	}
	return err
}

// errResponded is the error of writing an object after the server has sent its response.
var errResponded = errors.New("answered already")

func (p *peer) Open(ctx context.Context, name string) (storage.Object, error) {
	a, err := p.send(ctx, http.MethodHead, objectURLPath(name), nil)
	if err != nil {
		return nil, err
	}
	return &remoteObject{p, name, a.ContentLength}, a.Body.Close()
}

func (p *peer) List(ctx context.Context, prefix string) (all []storage.Info, err error) {
	a, err := p.send(ctx, http.MethodGet, "/l?prefix="+url.QueryEscape(prefix), nil)
	if err != nil {
		return nil, err
	}
	return all, errors.Join(json.NewDecoder(a.Body).Decode(&all), a.Body.Close())
}

func (p *peer) Remove(ctx context.Context, name string) error {
	a, err := p.send(ctx, http.MethodDelete, objectURLPath(name), nil)
	if errors.Is(err, storage.ErrNotExist) {
		return nil
	}
	if err == nil {
		err = a.Body.Close()
	}
	return err
}

type remoteObject struct {
	peer *peer
	name string
	size int64
}

func (o *remoteObject) Size() int64  { return o.size }
func (o *remoteObject) Close() error { return nil }

func (o *remoteObject) ReadAt(ctx context.Context, p []byte, offset int64) error {
	if offset < 0 || offset+int64(len(p)) > o.size {
		return fmt.Errorf("%s on %s: %w", o.name, o.peer.name, io.ErrUnexpectedEOF)
	}
	if len(p) == 0 {
		return nil
	}
	a, err := o.peer.send(ctx, http.MethodGet, objectURLPath(o.name), nil, "Range",
		fmt.Sprintf("bytes=%d-%d", offset, offset+int64(len(p))-1))
	if err != nil {
		return err
	}
	_, err = io.ReadFull(a.Body, p)
	return errors.Join(err, a.Body.Close())
}
