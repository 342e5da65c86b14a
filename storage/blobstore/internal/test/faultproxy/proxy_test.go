package faultproxy

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// counting answers "answer N to BODY", and counts.
func counting(t *testing.T) (*Proxy, *atomic.Int64) {
	t.Helper()
	var n atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		_, _ = io.WriteString(w, "answer "+string(rune('0'+n.Add(1)))+" to "+string(body))
	}))
	t.Cleanup(server.Close)
	p, err := Start(server.URL)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, p.Close()) })
	return p, &n
}

func ask(ctx context.Context, p *Proxy, method, body string) (int, string, error) {
	req, err := http.NewRequestWithContext(ctx, method, p.URL()+"/x", strings.NewReader(body))
	if err != nil {
		return 0, "", err
	}
	resp, err := (&http.Transport{DisableKeepAlives: true}).RoundTrip(req)
	if err != nil {
		return 0, "", err
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(data), err
}

func TestEachFaultIsWhatItSays(t *testing.T) {
	for fault, want := range map[Fault]struct {
		code    int
		body    string
		fails   bool
		reached int64 // requests that the server got
	}{
		None:         {200, "answer 1 to question", false, 1},
		Unavailable:  {503, `{"error":{"code":503,"message":"unavailable"}}`, false, 0},
		TooMany:      {429, `{"error":{"code":429,"message":"too many"}}`, false, 0},
		Unauthorized: {401, `{"error":{"code":401,"message":"unauthorized"}}`, false, 0},
		Forbidden:    {403, `{"error":{"code":403,"message":"forbidden"}}`, false, 0},
		CutRequest:   {0, "", true, 0},
		LoseAnswer:   {0, "", true, 1},
		CutAnswer:    {200, "answer 1 t", true, 1},
		ShortAnswer:  {200, "answer 1 t", false, 1},
		Slow:         {200, "answer 1 to question", false, 1},
		FlipRequest:  {200, "answer 1 to questi\x7fn", false, 1},
		FlipAnswer:   {200, "answer 1 to que\x63tion", false, 1},
		Twice:        {200, "answer 2 to question", false, 2},
	} {
		t.Run(fault.String(), func(t *testing.T) {
			p, reached := counting(t)
			p.Choose(func(*http.Request, int) Fault { return fault })
			code, body, err := ask(t.Context(), p, http.MethodPost, "question")
			assert.Equal(t, want.fails, err != nil, "%v", err)
			assert.Equal(t, want.code, code)
			if fault != CutAnswer { // a reset may take away what came before it
				assert.Equal(t, want.body, body)
			}
			assert.Equal(t, want.reached, reached.Load())
			assert.Equal(t, 1, p.Done()[fault])
			assert.Equal(t, map[string]int{"POST": 1}, p.Methods())
		})
	}
}

func TestAStalledAnswerLastsAsLongAsTheClient(t *testing.T) {
	p, _ := counting(t)
	p.Choose(func(*http.Request, int) Fault { return Stall })
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	_, body, err := ask(ctx, p, http.MethodPost, "question")
	assert.ErrorIs(t, err, context.DeadlineExceeded)
	assert.Equal(t, "answer 1 t", body)
}

func TestAStaleAnswerIsTheOneBefore(t *testing.T) {
	p, _ := counting(t)
	p.Choose(func(_ *http.Request, n int) Fault {
		if n > 1 {
			return Stale
		}
		return None
	})
	for range 2 {
		_, body, err := ask(t.Context(), p, http.MethodGet, "")
		require.NoError(t, err)
		assert.Equal(t, "answer 1 to ", body)
	}
}

func TestARivalComesFirst(t *testing.T) {
	p, reached := counting(t)
	p.OnRival(func(*http.Request) { reached.Add(4) })
	p.Choose(func(*http.Request, int) Fault { return Rival })
	_, body, err := ask(t.Context(), p, http.MethodPut, "mine")
	require.NoError(t, err)
	assert.Equal(t, "answer 5 to mine", body)
}

func TestRandomRepeatsItself(t *testing.T) {
	draw := func(seed uint64) (all []Fault) {
		c := Random(seed, 0.5, Unavailable, LoseAnswer)
		for n := range 20 {
			all = append(all, c(nil, n))
		}
		return all
	}
	assert.Equal(t, draw(1), draw(1))
	assert.NotEqual(t, draw(1), draw(2))
	assert.Contains(t, draw(1), None)
	assert.Contains(t, draw(1), LoseAnswer)
}
