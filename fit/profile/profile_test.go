package profile_test

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/fit/profile"
	"github.com/tpustrategy/tpustrategy/internal/test/strategytest"
)

func TestATriggerIsAskedOverHTTPAndBySignals(t *testing.T) {
	trigger := new(profile.Trigger)
	server := httptest.NewServer(trigger)
	defer server.Close()
	for _, c := range []struct {
		method, query string
		status        int
		asked         int64
	}{
		{"POST", "", 202, 1}, {"POST", "?steps=12", 202, 12}, {"GET", "?steps=12", 405, 0},
		{"POST", "?steps=none", 400, 0}, {"POST", "?steps=-3", 400, 0}, {"POST", "?steps=99999999999999999999", 400, 0},
	} {
		req, err := http.NewRequestWithContext(t.Context(), c.method, server.URL+c.query, nil)
		require.NoError(t, err)
		answer, err := http.DefaultClient.Do(req)
		require.NoError(t, err)
		require.NoError(t, answer.Body.Close())
		assert.Equal(t, c.status, answer.StatusCode, "%v", c)
		assert.Equal(t, c.asked, trigger.TakeRequest(), "%v", c)
		assert.Zero(t, trigger.TakeRequest(), "once")
	}

	stop := trigger.Notify(syscall.SIGUSR2)
	require.NoError(t, syscall.Kill(os.Getpid(), syscall.SIGUSR2))
	assert.Eventually(t, func() bool { return trigger.TakeRequest() == 1 }, 10*time.Second, time.Millisecond)
	stop()
	assert.Zero(t, (*profile.Trigger)(nil).TakeRequest())
}

func TestWithoutAProfilerTheHostIsRecorded(t *testing.T) {
	dir := t.TempDir()
	r, err := profile.Start(strategytest.New(t, 2, 1))
	require.NoError(t, err)
	assert.ErrorIs(t, r.DeviceError(), errors.ErrUnsupported)
	for step := range int64(2) {
		r.BeginActivity("input")
		r.BeginStep(step + 1)
		r.BeginActivity("launch")
	}
	name, err := r.Stop(t.Context(), dir, "steps_1-2")
	require.NoError(t, err)
	assert.Regexp(t, `^plugins/profile/steps_1-2/.*-0000\.xplane\.pb$`, name)
	data, err := os.ReadFile(filepath.Join(dir, filepath.FromSlash(name)))
	require.NoError(t, err)
	for _, word := range []string{"/host:CPU", "train", "input", "launch", "step_num"} {
		assert.Contains(t, string(data), word)
	}
	r.BeginActivity("late")
	_, err = r.Stop(t.Context(), filepath.Join(dir, name, "below a file"), "x")
	assert.Error(t, err)
}
