package accept

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"log/slog"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/internal/test/plugintest"
	"github.com/tpustrategy/tpustrategy/lowering"
	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/tpu/simhost"
	"github.com/tpustrategy/tpustrategy/tpu/system"
)

var update = flag.Bool("update", false, "write losses.json anew")

// cpu opens CPU devices for a run, which closes them.
func cpu(t testing.TB, devices int) func(context.Context, *slog.Logger) (*system.System, error) {
	path := plugintest.Path(t, "cpu")
	return func(ctx context.Context, logger *slog.Logger) (*system.System, error) {
		return system.Open(ctx, system.Options{CPUDevices: devices, Plugin: path, Logger: logger})
	}
}

// onHosts runs the parts on simulated hosts at once.
func onHosts(t testing.TB, devices, hosts int, o Options) []*Report {
	return onHostsWith(t, devices, hosts, o, func(*simhost.Cluster) {})
}

// onHostsWith is onHosts, with the cluster before the parts begin.
func onHostsWith(t testing.TB, devices, hosts int, o Options, know func(*simhost.Cluster)) []*Report {
	base := plugintest.System(t, devices)
	cluster, err := simhost.New(base, simhost.Options{Processes: hosts, Patience: 20 * time.Second,
		Compiler: plugintest.Programs(t)})
	require.NoError(t, err)
	know(cluster)
	reports := make([]*Report, hosts)
	var all sync.WaitGroup
	for i := range hosts {
		mine := o
		mine.Open = func(ctx context.Context, _ *slog.Logger) (*system.System, error) { return cluster.Open(ctx, i) }
		all.Go(func() {
			report, err := Run(context.Background(), mine)
			assert.NoError(t, err)
			reports[i] = report
		})
	}
	all.Wait()
	return reports
}

// TestStoredLosses trains on one device of the CPU plugin and compares with losses.json, which it
// writes with -update.
func TestStoredLosses(t *testing.T) {
	sys := plugintest.System(t, 1)
	made := ReferenceLosses{Origin: "go test ./internal/accept -run TestStoredLosses -update",
		Plugin: sys.Client().Plugin().APIVersion().String() + " " + sys.Client().PlatformVersion(),
		Losses: map[string][]float64{}}
	for _, losses := range []string{"float32", "bfloat16"} {
		s, err := strategy.New(sys, strategy.Options{Precision: lowering.PrecisionHighest})
		require.NoError(t, err)
		all, _, _, err := runTraining(t.Context(), s, losses)
		require.NoError(t, err)
		require.NoError(t, s.Close())
		require.Len(t, all, trainSteps)
		require.Less(t, all[trainSteps-1], all[0]/4, "it learns")
		made.Losses[losses] = all
	}
	if *update {
		data, err := json.MarshalIndent(made, "", " ")
		require.NoError(t, err)
		require.NoError(t, os.WriteFile("losses.json", append(data, '\n'), 0o644))
		return
	}
	want, err := readStoredLosses()
	require.NoError(t, err)
	for losses, all := range made.Losses {
		require.Len(t, want.Losses[losses], trainSteps)
		for i, loss := range all {
			assert.InEpsilon(t, want.Losses[losses][i], loss, 1e-6, "%s, step %d", losses, i) // processors differ
		}
	}
}

func TestAcceptedOnCPUDevices(t *testing.T) {
	began := time.Now()
	var told []Outcome
	report, err := Run(t.Context(), Options{Open: cpu(t, 2), Getenv: os.Getenv,
		OnOutcome: func(o Outcome) { told = append(told, o) }})
	require.NoError(t, err)
	for _, o := range report.Outcomes {
		t.Log(o.Text())
		assert.Equal(t, Passed, o.Status, o.Part)
	}
	assert.Equal(t, Accepted, report.Verdict, report.Reasons)
	assert.Zero(t, report.Verdict.Code())
	ran := len(Parts()) - 1 // none is killed
	assert.Equal(t, ran, len(report.Outcomes))
	assert.Equal(t, 2*ran, len(told), "each part as it begins and as it ends")
	t.Log(time.Since(began))

	var file bytes.Buffer
	require.NoError(t, WriteArchive(&file, report))
	read, err := ReadArchive(&file)
	require.NoError(t, err)
	assert.Equal(t, report, read)
}

func TestAcceptedOnFourHosts(t *testing.T) {
	reports := onHosts(t, 8, 4, Options{Store: t.TempDir()})
	for host, report := range reports {
		assert.Equal(t, Accepted, report.Verdict, "%v", report.Reasons)
		assert.Equal(t, host, report.Host)
		assert.Equal(t, 4, report.Hosts)
		assert.Equal(t, 4*(len(Parts())-1), len(report.Outcomes), "each host has the outcomes of all")
	}
}

// The times of the parts are what is promised: 15 minutes, and 2 of a quick run.
func TestTheTimesAddUp(t *testing.T) {
	var full, quick time.Duration
	for _, p := range Parts() {
		full, quick = full+p.TimeLimit, quick+p.QuickTimeLimit
	}
	assert.LessOrEqual(t, full, 15*time.Minute)
	assert.LessOrEqual(t, quick, 2*time.Minute)
}

func TestADamagedArchiveIsRefused(t *testing.T) {
	var file bytes.Buffer
	require.NoError(t, WriteArchive(&file, &Report{Version: Version, Outcomes: []Outcome{{Part: "start"}}}))
	for n := range file.Len() {
		_, err := ReadArchive(bytes.NewReader(file.Bytes()[:n]))
		require.Error(t, err, "%d bytes", n)
	}
	other := Report{Version: Version + 1}
	file.Reset()
	require.NoError(t, WriteArchive(&file, &other))
	_, err := ReadArchive(&file)
	require.ErrorContains(t, err, "version 2, and this program reads 1")
}
