//go:build unix

package interrupt_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	clusterresolver "github.com/tpustrategy/tpustrategy/cluster_resolver"
	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/fit/interrupt"
)

func ended(t *testing.T, ctx context.Context) *interrupt.Notice {
	t.Helper()
	select {
	case <-ctx.Done():
	case <-time.After(20 * time.Second):
		t.Fatal("no notice")
	}
	n := interrupt.FromContext(ctx)
	require.NotNil(t, n)
	return n
}

// left checks the time until a deadline.
func left(t *testing.T, ctx context.Context, want time.Duration) {
	t.Helper()
	got, known := interrupt.TimeLeft(ctx)
	require.True(t, known)
	assert.LessOrEqual(t, got, want)
	assert.Greater(t, got, want-10*time.Second)
}

func TestASignalIsANotice(t *testing.T) {
	for _, c := range []struct {
		signal   syscall.Signal
		reason   string
		code     int
		deadline bool
	}{{syscall.SIGTERM, "SIGTERM", 143, true}, {syscall.SIGINT, "SIGINT", 130, false},
		{syscall.SIGUSR1, `signal "user defined signal 1"`, 138, true}} {
		ctx, stop := interrupt.Notify(t.Context(), interrupt.Options{Signals: []os.Signal{c.signal}, Grace: time.Minute})
		assert.Nil(t, interrupt.FromContext(ctx))
		assert.Equal(t, time.Minute, interrupt.GracePeriod(ctx))
		require.NoError(t, syscall.Kill(os.Getpid(), c.signal))
		n := ended(t, ctx)
		assert.Equal(t, c.reason, n.Reason)
		assert.Equal(t, c.signal, n.Signal)
		assert.Equal(t, c.code, (&interrupt.Error{Unsaved: true, Notice: n}).ExitCode())
		assert.Equal(t, errkind.CancelledError, errkind.KindOf(context.Cause(ctx)))
		if _, known := interrupt.TimeLeft(ctx); c.deadline {
			left(t, ctx, time.Minute)
		} else {
			assert.False(t, known, "a person waits")
		}
		stop()
		stop()
	}
	assert.Equal(t, 30*time.Second, interrupt.GracePeriod(t.Context()))
}

func TestStoppingIsNoNotice(t *testing.T) {
	ctx, stop := interrupt.Notify(t.Context(), interrupt.Options{File: filepath.Join(t.TempDir(), "stop")})
	stop()
	require.Error(t, ctx.Err())
	assert.Equal(t, "context canceled", interrupt.FromContext(ctx).Reason)
	parent, cancel := context.WithCancelCause(t.Context())
	ctx, stop = interrupt.Notify(parent, interrupt.Options{})
	defer stop()
	cancel(errors.New("enough"))
	assert.Equal(t, "enough", ended(t, ctx).Reason)
}

// A file of an earlier notice does not interrupt the resumed run.
func TestAFileIsANoticeWhenItAppearsOrChanges(t *testing.T) {
	path := filepath.Join(t.TempDir(), "stop")
	for _, text := range []string{"the queue is drained\nat noon", "", "drained again, " + strings.Repeat("x", 1000)} {
		ctx, stop := interrupt.Notify(t.Context(), interrupt.Options{Signals: []os.Signal{}, File: path})
		time.Sleep(550 * time.Millisecond)
		require.NoError(t, ctx.Err(), "what was there")
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		n := ended(t, ctx)
		first, _, _ := strings.Cut(text, "\n")
		assert.Contains(t, n.Reason, "the file "+path+" is there")
		assert.Contains(t, n.Reason, first[:min(len(first), 100)])
		assert.Less(t, len(n.Reason), 500)
		left(t, ctx, 30*time.Second)
		stop()
	}
}

func TestANoticeOfOnesOwn(t *testing.T) {
	own := make(chan interrupt.Notice)
	ctx, stop := interrupt.Notify(t.Context(), interrupt.Options{Notices: own})
	defer stop()
	deadline := time.Now().Add(time.Hour)
	own <- interrupt.Notice{Reason: "quota", Deadline: deadline}
	assert.Equal(t, &interrupt.Notice{Reason: "quota", Deadline: deadline}, ended(t, ctx))
	closed := make(chan interrupt.Notice)
	close(closed)
	ctx, stop = interrupt.Notify(t.Context(), interrupt.Options{Notices: closed})
	time.Sleep(20 * time.Millisecond)
	assert.NoError(t, ctx.Err(), "a closed channel is no notice")
	stop()
}

// answers is a simulated metadata server.
type answers func(path string) (string, int)

func (a answers) RoundTrip(r *http.Request) (*http.Response, error) {
	text, code := a(r.URL.Path)
	// until it changes
	for last := r.URL.Query().Get("last_etag"); last == fmt.Sprintf("%x", text); text, code = a(r.URL.Path) {
		select {
		case <-r.Context().Done():
			return nil, r.Context().Err()
		case <-time.After(10 * time.Millisecond):
		}
	}
	return &http.Response{StatusCode: code, Status: http.StatusText(code), Body: io.NopCloser(strings.NewReader(text)),
		Request: r,
		Header:  http.Header{"Metadata-Flavor": {"Google"}, "Etag": {fmt.Sprintf("%x", text)}}}, nil
}

func TestNoticesOfTheMetadataServer(t *testing.T) {
	for _, c := range []struct {
		key, value, reason string
		left               time.Duration
	}{
		{"preempted", "TRUE", "the machine is being pre-empted", 30 * time.Second},
		{"maintenance-event", "TERMINATE_ON_HOST_MAINTENANCE", "host maintenance will stop the machine", time.Minute},
		{"maintenance-event", "MIGRATE_ON_HOST_MAINTENANCE", "", 0},
	} {
		var noticed atomic.Bool
		client := clusterresolver.NewMetadataClient(clusterresolver.MetadataOptions{Transport: answers(
			func(path string) (string, int) {
				switch {
				case strings.HasSuffix(path, c.key) && noticed.Load():
					return c.value, 200
				case strings.HasSuffix(path, "preempted"):
					return "FALSE", 200
				}
				return "NONE", 200
			})})
		ctx, stop := interrupt.Notify(t.Context(), interrupt.Options{Signals: []os.Signal{}, Metadata: client})
		time.Sleep(100 * time.Millisecond)
		require.NoError(t, ctx.Err())
		noticed.Store(true)
		if c.reason == "" {
			time.Sleep(300 * time.Millisecond)
			require.NoError(t, ctx.Err(), "a machine that moves while it runs goes on")
		} else {
			assert.Equal(t, c.reason, ended(t, ctx).Reason)
			left(t, ctx, c.left)
		}
		stop()
	}
}

func TestCodes(t *testing.T) {
	again := &interrupt.Error{Step: 12, Notice: &interrupt.Notice{Reason: "SIGTERM"}}
	for _, c := range []struct {
		err  error
		code int
	}{
		{nil, 0}, {errors.New("x"), 1}, {again, 75}, {errors.Join(errors.New("x"), fmt.Errorf("y: %w", again)), 75},
		{exec.Command("false").Run(), 1}, {exec.Command("sh", "-c", "exit 9").Run(), 1},
		{fmt.Errorf("start: %w", context.DeadlineExceeded), 69},
		{errors.Join(errkind.New(errkind.UnavailableError, "no host 2"), errors.New("x")), 69},
		{fmt.Errorf("start: %w", &interrupt.Notice{Reason: "SIGTERM", Signal: syscall.SIGTERM, Deadline: time.Now()}), 75},
		{fmt.Errorf("start: %w", &interrupt.Notice{Reason: "the machine is being pre-empted", Deadline: time.Now()}), 75},
		{fmt.Errorf("start: %w", &interrupt.Notice{Reason: "SIGINT", Signal: os.Interrupt}), 130},
		{&interrupt.Error{Notice: &interrupt.Notice{Reason: "SIGINT", Signal: os.Interrupt}}, 130},
		{&interrupt.Error{Notice: &interrupt.Notice{Reason: "SIGTERM", Signal: syscall.SIGTERM, Deadline: time.Now()}}, 75},
	} {
		assert.Equal(t, c.code, interrupt.ExitCodeFor(c.err), "%v", c.err)
	}
	assert.EqualError(t, again, "interrupt: stopped after step 12: SIGTERM; restart the process to resume")
	assert.Equal(t, 75, interrupt.ExitCode)
}

// TestSecondSignalChild is the process of the test below.
func TestSecondSignalChild(t *testing.T) {
	if os.Getenv("INTERRUPT_TEST_CHILD") == "" {
		t.Skip("TestTheSecondSignalEndsTheProcess starts this")
	}
	own := make(chan interrupt.Notice, 1)
	ctx, stop := interrupt.Notify(context.Background(), interrupt.Options{Notices: own})
	defer stop()
	if os.Getenv("INTERRUPT_TEST_CHILD") == "noticed" {
		own <- interrupt.Notice{Reason: "quota"}
		<-ctx.Done()
	}
	fmt.Println("ready")
	<-ctx.Done()
	fmt.Println("noticed")
	time.Sleep(time.Minute) // a slow save
}

// After a signal the next signal ends the process. After another notice the first signal belongs to
// the notice, and the next signal ends the process.
func TestTheSecondSignalEndsTheProcess(t *testing.T) {
	for _, kind := range []string{"signals", "noticed"} {
		cmd := exec.Command(os.Args[0], "-test.run=^TestSecondSignalChild$")
		cmd.Env = append(os.Environ(), "INTERRUPT_TEST_CHILD="+kind)
		out, err := cmd.StdoutPipe()
		require.NoError(t, err)
		require.NoError(t, cmd.Start())
		lines := bufio.NewScanner(out)
		says := func(want string) {
			t.Helper()
			require.True(t, lines.Scan())
			require.Equal(t, want, lines.Text())
		}
		says("ready")
		if kind == "noticed" {
			says("noticed")
		}
		start := time.Now()
		require.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
		if kind == "signals" {
			says("noticed")
		}
		time.Sleep(100 * time.Millisecond) // until the first signal is received
		require.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
		require.Error(t, cmd.Wait())
		assert.Less(t, time.Since(start), 20*time.Second)
		assert.Equal(t, syscall.SIGTERM, cmd.ProcessState.Sys().(syscall.WaitStatus).Signal(), kind)
	}
}
