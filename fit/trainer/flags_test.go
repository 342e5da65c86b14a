package trainer_test

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/fit"
	"github.com/tpustrategy/tpustrategy/fit/trainer"
	"github.com/tpustrategy/tpustrategy/fit/watchdog"
	"github.com/tpustrategy/tpustrategy/internal/command"
	"github.com/tpustrategy/tpustrategy/internal/test/strategytest"
	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/lowering/precision"
	"github.com/tpustrategy/tpustrategy/strategy"
)

func parsed(line string) (*trainer.Flags, string, error) {
	var said bytes.Buffer
	f := trainer.AddFlags(flag.NewFlagSet("program", flag.ContinueOnError), trainer.Defaults{Steps: 600, Devices: 8})
	err := f.Parse(strings.Fields(line), &said)
	return f, said.String(), err
}

func TestFlagsHaveTheirDefaults(t *testing.T) {
	f, _, err := parsed("")
	require.NoError(t, err)
	assert.Equal(t, int64(600), f.Steps)
	assert.Equal(t, 8, f.Devices)
	assert.Equal(t, 1, f.Accumulate)
	assert.Equal(t, int64(1), f.Seed)
	assert.Equal(t, strategy.Options{LogicalDevices: 1}, f.StrategyOptions(nil))
	f, _, err = parsed(
		"-shard-state parameters -precision bf16 -remat full -replicas 4 -logical 2 -accumulate 3 -steps 7 -resume -out x")
	require.NoError(t, err)
	assert.Equal(t, strategy.Options{Replicas: 4, LogicalDevices: 2, Variables: strategytest.Share(logical.ShardParameters,
		0)}, f.StrategyOptions(nil))
	assert.Equal(t, precision.MixedBFloat16, f.Precision)
	assert.Equal(t, "Nothing()", f.Remat.String())
	f, _, err = parsed("-profile 100-110 -steps 7 -resume -out x")
	require.NoError(t, err)
	assert.Equal(t, []int64{100, 110}, []int64{f.Profile.From, f.Profile.To})
	f, _, err = parsed("-near 10 -steps 7 -resume -out x")
	require.NoError(t, err)
	assert.Equal(t, fit.LocalCheckpoints{Folder: "/dev/shm/tpustrategy", Every: 10}, f.Local)
	opts := f.FitOptions(nil)
	opts.Logger = nil
	assert.Equal(t, fit.Options{Steps: 7, Resume: true}, opts)
}

func TestBadFlagsAreErrorsOfValue(t *testing.T) {
	for line, want := range map[string]string{
		"-replicas 5 -logical 2": "5 replicas of 2 logical devices do not fit on 8 devices",
		"-steps 0":               "-steps 0; give a number from 1",
		"-steps -1":              "-steps -1", "-batch -8": "-batch -8", "-accumulate 0": "-accumulate 0",
		"-devices 1000": "-devices 1000", "-logical 0": "-logical 0",
		"-shard-state all": `unknown name "all"; use one of none, optimizer`, "-precision fp8": `no policy "fp8"`,
		"-remat some": `no policy "some"`, "-resume": "-resume requires the folder of the run",
		"-steps x": "invalid value", "-bogus": "not defined", "stray": `"stray" is no flag`, "-seed 1.5": "invalid value",
		"-profile 5": "such as 100-110", "-profile 0-3": "such as 100-110", "-profile 5-4": "such as 100-110",
		"-profile 3-4x": "such as 100-110",
		"-near 0":       "such as 10 or 10:/mnt/ssd", "-near /mnt/ssd": "such as 10", "-near 10": "give it by -out",
	} {
		_, _, err := parsed(line)
		assert.ErrorContains(t, err, want, line)
		assert.Equal(t, errkind.ValueError, errkind.KindOf(err), line)
	}
	_, said, err := parsed("-help")
	assert.ErrorIs(t, err, flag.ErrHelp)
	for _, name := range []string{"steps", "batch", "accumulate", "shard-state", "remat", "precision", "resume", "seed",
		"out", "devices", "plugin", "topology", "profile", "cache"} {
		assert.Contains(t, said, "  -"+name)
	}
}

func TestErrorsHaveTheirExitCodes(t *testing.T) {
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	terminated, end := context.WithCancelCause(t.Context())
	end(&command.Signal{Signal: syscall.SIGTERM, At: time.Now()})
	stuck := &watchdog.StuckError{Report: watchdog.Report{Record: watchdog.Record{Findings: []watchdog.Finding{{Host: 3,
		Cause: watchdog.Exited, Text: "it left"}}}}}
	for _, c := range []struct {
		ctx  context.Context
		err  error
		code int
		said string
	}{
		{t.Context(), nil, 0, ""}, {t.Context(), flag.ErrHelp, 0, ""}, {t.Context(), trainer.NewExitError(0), 0, ""},
		{t.Context(), trainer.NewExitError(4), 4, ""},
		{t.Context(), errors.New("broken"), 1, "program: broken\n"},
		{t.Context(), errkind.New(errkind.ValueError, "bad"), 2, "program: bad\n"},
		{t.Context(), &errkind.Fault{Match: trainer.ErrUsage, Reason: "-steps 0", Hint: "give 1"}, 2,
			"program: command line: -steps 0; give 1\nusage: program [flags]; program -help lists them\n"},
		{ended, errors.New("stopped"), 130, "program: stopped\n"}, {terminated, errors.New("stopped"), 75,
			"program: stopped\n"},
		{t.Context(), errkind.New(errkind.UnavailableError, "gone"), 69, "program: gone\n"},
		{ended, stuck, watchdog.ExitCode, "program: " + stuck.Error() + "\n"},
	} {
		var said bytes.Buffer
		assert.Equal(t, c.code, trainer.ExitCode(c.ctx, "program", c.err, &said))
		assert.Equal(t, c.said, said.String())
	}
	assert.EqualError(t, trainer.NewExitError(4), "exit code 4")
	assert.Equal(t, errkind.RuntimeError, errkind.KindOf(trainer.NewExitError(4)))
}

func TestAnOutcomeIsOneLine(t *testing.T) {
	var said bytes.Buffer
	require.NoError(t, trainer.WriteTextResult(&said, fit.Result{}, 128, 10))
	assert.Equal(t, `{"bits_per_byte":null,"loss":null,"tokens_per_second":0,"parameters":10,"steps":0,"seconds":0}`+"\n",
		said.String())
	said.Reset()
	result := fit.Result{Step: 9, Rows: 4, TrainSeconds: 2, Seconds: 3, Metrics: []fit.Metric{{Name: "loss", Value: 1.5},
		{Name: "held/bits_per_byte", Value: 2.25}}}
	require.NoError(t, trainer.WriteTextResult(&said, result, 128, 10))
	assert.Equal(t, `{"bits_per_byte":2.25,"loss":1.5,"tokens_per_second":256,"parameters":10,"steps":9,"seconds":3}`+"\n",
		said.String())
}

func TestAPlanSetsTheFlags(t *testing.T) {
	file := filepath.Join(t.TempDir(), "plan.json")
	require.NoError(t, os.WriteFile(file, []byte(`{"version": 1, "slice": "v5e:2x2", "replicas": 2, "axes": "logical=2",
		"rules": [{"variable": "", "state": "gradients", "optional": true}], "settings": {"remat": "full", "accumulate": "4", "precision": "bf16"}}`), 0o600))
	f, _, err := parsed("-by " + file + " -accumulate 2")
	require.NoError(t, err)
	assert.Equal(t, []int{2, 2, 2}, []int{f.Replicas, f.Logical, f.Accumulate}, "what stands behind -by counts")
	assert.Equal(t, "Nothing()", f.Remat.String())
	opts := f.StrategyOptions(logical.Rules{logical.Match("/up", logical.SplitOverAxes("", "logical"))})
	require.Len(t, opts.Variables, 1, "the plan has all rules")
	assert.Equal(t, logical.ShardGradients, opts.Variables[0].State)
	assert.Equal(t, 2, opts.LogicalAxes[0].Size)

	require.NoError(t,
		os.WriteFile(file,
			[]byte(`{"version": 1, "slice": "v5e:2x2", "replicas": 2, "axes": "logical=2", "settings": {"depth": "4"}}`), 0o600))
	_, _, err = parsed("-by " + file)
	assert.ErrorContains(t, err, "-depth: no such flag")
}
