package accept

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/tpu/simhost"
)

// fault is something wrong with a slice, and the part and words by which the verdict names it.
type fault struct {
	name, part, says string
	verdict          Verdict
	seams            TestHooks
}

// wrong changes the first byte of the answers of a part whose check has a name.
func wrong(part, check string) TestHooks {
	return TestHooks{ChangeResult: func(_ int, p, c string, answer []byte) {
		if p == part && strings.Contains(c, check) {
			answer[0] ^= 1
		}
	}}
}

func faults() []fault {
	return []fault{
		{"a wrong sum", "collectives",
			"all_reduce over all devices of S32, device 0: 1 of 4 elements are wrong; element 0 is", Rejected,
			wrong("collectives", "all_reduce over")},
		{"a wrong gather of the strategy", "collectives", "between replicas, 2 x 1, result 1, replica 0", Rejected,
			wrong("collectives", "between replicas, 2 x 1, result 1")},
		{"a dtype that computes wrongly", "dtypes", "BF16 doubled, device 1: 1 of 16 elements are wrong", Rejected,
			wrong("dtypes", "BF16 doubled, device 1")},
		{"a split that loses elements", "splits", "rows split, 1 x 2, result 0", Rejected,
			wrong("splits", "rows split, 1 x 2, result 0")},
		{"a variable that is not updated", "donation", "the variable's maximum", Rejected, wrong("donation", "maximum")},
		{"a padded batch", "batches", "padded batch 2", Rejected, wrong("batches", "padded batch 2")},
		{"a transfer that changes bytes", "transfers", "what comes back from device 1", Rejected,
			wrong("transfers", "device 1")},
		{"a training that goes elsewhere", "training", "float32, 2 x 1: the loss of step 52 is", Rejected,
			TestHooks{ChangeResult: func(_ int, p, c string, answer []byte) {
				if p == "training" && strings.HasPrefix(c, "float32") {
					answer[0] ^= 0x10
				}
			}}},
		{"a missing device", "devices", "no device at (0,0,0,1) of host 0", Rejected,
			TestHooks{ChangeDevices: func(_ int, all []Device) []Device { return all[:1] }}},
		{"wrong coordinates", "devices", "device 1 is at [7 0 0 0], which the mesh", Rejected,
			TestHooks{ChangeDevices: func(_ int, all []Device) []Device {
				all[1].Coords = [4]int{7, 0, 0, 0}
				return all
			}}},
		{"two devices at one place", "devices", "devices 0 and 1 are both at", Rejected,
			TestHooks{ChangeDevices: func(_ int, all []Device) []Device {
				all[1].Coords = all[0].Coords
				return all
			}}},
		{"a part that is late", "memory", "the time of the part, 50ms, is over", Rejected, TestHooks{
			TimeLimits: map[string]time.Duration{"memory": 50 * time.Millisecond},
			BeforePart: func(ctx context.Context, _ int, part string) error { return late(ctx, part == "memory") },
		}},
		{"a part that fails", "random", "the machine is on fire", Rejected, TestHooks{BeforePart: func(_ context.Context,
			_ int, part string) error {
			if part == "random" {
				return errors.New("the machine is on fire")
			}
			return nil
		}}},
		{"a part that panics", "random", "panic: oh", Rejected, TestHooks{BeforePart: func(_ context.Context, _ int,
			part string) error {
			if part == "random" {
				panic("oh")
			}
			return nil
		}}},
	}
}

func late(ctx context.Context, it bool) error {
	if it {
		<-ctx.Done()
		return context.Cause(ctx)
	}
	return nil
}

// TestFaultsAreNamed makes each part fail, and sees that the verdict says which and how, and that
// the parts after it are run.
func TestFaultsAreNamed(t *testing.T) {
	open := cpu(t, 2)
	for _, f := range faults() {
		t.Run(f.name, func(t *testing.T) {
			report, err := Run(t.Context(), Options{Open: open, Quick: f.part == "training", Hooks: f.seams,
				Only: []string{f.part, "matmul"}})
			require.NoError(t, err)
			assert.Equal(t, f.verdict, report.Verdict)
			assert.Equal(t, 1, report.Verdict.Code())
			require.NotEmpty(t, report.Reasons)
			for _, reason := range report.Reasons {
				assert.True(t, strings.HasPrefix(reason, f.part+": "), reason)
			}
			assert.Contains(t, strings.Join(report.Reasons, "\n"), f.says)
			last := report.Outcomes[len(report.Outcomes)-1]
			assert.Equal(t, "matmul", last.Part)
			assert.Equal(t, Passed, last.Status, "the others are run: %v", last)
		})
	}
}

// A part that never comes back is left behind by its time, and the next ones are run, since the
// devices answer.
func TestAHangIsCutAndNamed(t *testing.T) {
	hanging := make(chan struct{})
	defer close(hanging)
	report, err := Run(t.Context(), Options{Open: cpu(t, 2), Only: []string{"memory", "matmul"}, Hooks: TestHooks{
		TimeLimits: map[string]time.Duration{"memory": 100 * time.Millisecond}, GracePeriod: 100 * time.Millisecond,
		BeforePart: func(_ context.Context, _ int, part string) error {
			if part == "memory" {
				<-hanging
			}
			return nil
		},
	}})
	require.NoError(t, err)
	assert.Equal(t, Rejected, report.Verdict)
	assert.Len(t, report.Reasons, 1)
	assert.Contains(t, report.Reasons[0], "memory: no answer in 200ms: the time of the part, 100ms, is over")
	assert.Equal(t, []Status{Passed, Hung, Passed}, states(report))
}

func states(r *Report) (all []Status) {
	for _, o := range r.Outcomes {
		all = append(all, o.Status)
	}
	return all
}

// The time of a run is bounded as a whole, and what was not run by then says so.
func TestTheWholeRunIsBounded(t *testing.T) {
	report, err := Run(t.Context(), Options{Open: cpu(t, 2), Only: []string{"memory", "matmul"},
		TimeLimit: 2 * time.Second, Hooks: TestHooks{
			BeforePart: func(ctx context.Context, _ int, part string) error { return late(ctx, part == "memory") },
		}})
	require.NoError(t, err)
	assert.Equal(t, []Status{Passed, Failed, NotRun}, states(report))
	assert.Contains(t, report.Reasons[0], "the run reached its time limit of 2s")
}

// What fails on one host is known on all, and the parts after it are run on all.
func TestAHostsFaultIsKnownOnAll(t *testing.T) {
	reports := onHosts(t, 4, 2, Options{Only: []string{"devices", "donation", "matmul"}, Hooks: TestHooks{
		ChangeResult: func(host int, part, _ string, answer []byte) {
			if host == 1 && part == "donation" {
				answer[0] ^= 1
			}
		},
		ChangeMeasurement: func(host int, part string, f Measurement) float64 {
			if part == "matmul" {
				return 10 - 8*float64(host)
			}
			return f.Value
		},
	}})
	for _, report := range reports {
		assert.Equal(t, Rejected, report.Verdict)
		for _, reason := range report.Reasons {
			assert.True(t, strings.HasPrefix(reason, "donation, host 1: the variable's maximum"), reason)
		}
		slowest := report.Outcomes[len(report.Outcomes)-1]
		assert.Equal(t, 1, slowest.Host)
		assert.Equal(t, []string{"slow: matmul bfloat16, a device: 2 TFLOP/s, and the median of the hosts is 10"},
			slowest.Findings)
	}
}

// A host that ends in the middle leaves the others with a verdict that says so.
func TestAHostThatEndsIsNamed(t *testing.T) {
	var cluster *simhost.Cluster
	reports := onHostsWith(t, 4, 2, Options{Only: []string{"devices", "memory", "matmul"}, Hooks: TestHooks{
		BeforePart: func(_ context.Context, host int, part string) error {
			if part == "memory" && host == 1 {
				cluster.Kill(1)
			}
			return nil
		},
	}}, func(c *simhost.Cluster) { cluster = c })
	assert.Equal(t, Rejected, reports[0].Verdict)
	assert.Contains(t, strings.Join(reports[0].Reasons, "\n"), "process 1")
	assert.Equal(t, NotRun, reports[0].Outcomes[len(reports[0].Outcomes)-1].Status)
}

func TestWhatCannotBeRunIsRefused(t *testing.T) {
	for _, o := range []Options{{}, {Open: cpu(t, 1), Only: []string{"colectives"}},
		{Open: cpu(t, 1), Skip: []string{"start"}}, {Open: cpu(t, 1), TimeLimit: -1}} {
		_, err := Run(t.Context(), o)
		assert.Error(t, err)
	}
	report, err := Run(t.Context(), Options{Open: cpu(t, 1), Accelerator: "v5litepod-7", Only: []string{"devices"}})
	require.NoError(t, err)
	assert.Equal(t, Rejected, report.Verdict)
}
