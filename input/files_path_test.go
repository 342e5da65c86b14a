package input

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestWhatIsNoFileIsRefusedAndDoesNotHang(t *testing.T) {
	dir := t.TempDir()
	pipe := filepath.Join(dir, "pipe")
	require.NoError(t, syscall.Mkfifo(pipe, 0o644))
	for _, path := range []string{"gs://bucket/file", "s3://b/f", pipe, "/dev/zero", dir} {
		for name, d := range map[string]Dataset{
			"lines": Lines([]string{path}, FileOptions{}), "records": TFRecords([]string{path}, FileOptions{}),
		} {
			failed := make(chan error, 1)
			go func() {
				it, err := d.Open(context.Background())
				if err == nil {
					_, err = it.Next(context.Background())
				}
				failed <- err
			}()
			select {
			case err := <-failed:
				var refused *PathError
				require.ErrorAs(t, err, &refused, "%s %s", name, path)
				require.Equal(t, path, refused.Path)
			case <-time.After(10 * time.Second):
				t.Fatalf("%s of %s hangs", name, path)
			}
		}
	}
	_, err := os.Stat("gs:")
	require.True(t, errors.Is(err, os.ErrNotExist))
}
