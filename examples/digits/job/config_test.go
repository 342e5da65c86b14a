package job_test

import (
	"context"
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/examples/digits/job"
)

func TestSettingsThatCannotBeRunNameTheirFlag(t *testing.T) {
	notADirectory := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(notADirectory, []byte("no plugin"), 0o600))
	for _, c := range []struct {
		name       string
		cfg        job.Config
		flag, want string
	}{
		{"more replicas than devices", job.Config{Replicas: 9, Devices: 8}, "replicas", "9 replicas of 1 logical devices do not fit on 8"},
		{"more logical devices than devices", job.Config{Logical: 9, Devices: 8}, "replicas", "do not fit"},
		{"product beyond devices", job.Config{Replicas: 4, Logical: 4, Devices: 8}, "replicas", "do not fit"},
		{"product beyond integers", job.Config{Replicas: math.MaxInt / 2, Logical: 8, Devices: 8}, "replicas", "do not fit"},
		{"too many devices", job.Config{Devices: math.MaxInt}, "devices", "at most"},
		{"negative replicas", job.Config{Replicas: -1, Devices: 8}, "replicas", "give a number from 1"},
		{"negative logical devices", job.Config{Logical: -1, Devices: 8}, "logical", "give a number from 1"},
		{"negative devices", job.Config{Devices: -1}, "devices", "give a number from 0"},
		{"negative steps", job.Config{Devices: 1, Steps: -1}, "steps", "give a number from 0"},
		{"negative batch", job.Config{Devices: 1, Batch: -4}, "batch", "give a number from 0"},
		{"batch not divisible", job.Config{Replicas: 4, Devices: 8, Batch: 30}, "batch", "multiple of 4"},
		{"batch beyond the data", job.Config{Devices: 1, Batch: 2000}, "batch", "1438"},
		{"no data directory", job.Config{Devices: 1, Data: notADirectory + "s"}, "data", "no such file"},
		{"data is a file", job.Config{Devices: 1, Data: notADirectory}, "data", "not a directory"},
		{"no plugin", job.Config{Devices: 1, Plugin: notADirectory + ".so"}, "plugin", "no cpu plugin found"},
		{"not a plugin", job.Config{Devices: 1, Plugin: notADirectory}, "plugin", notADirectory},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := job.Run(context.Background(), c.cfg, job.Hooks{})
			var usage *job.UsageError
			require.ErrorAs(t, err, &usage)
			assert.Equal(t, c.flag, usage.Flag)
			assert.ErrorContains(t, err, c.want)
			assert.NotContains(t, err.Error(), "\n")
		})
	}
}
