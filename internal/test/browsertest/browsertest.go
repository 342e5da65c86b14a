package browsertest

import (
	"bytes"
	"context"
	"fmt"
	"image"
	"image/png"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Show opens a page in a window of so many pixels, and returns the document as the browser prints it
// and a picture. The arguments are further ones of the browser. Without a browser that works the
// test is skipped, or fails where TPUSTRATEGY_REQUIRE_BROWSER is set.
func Show(t *testing.T, page []byte, width, height int, args ...string) (printed string, picture image.Image) {
	t.Helper()
	reason := "no chromium is installed"
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		browser, err := exec.LookPath(name)
		if err != nil {
			continue
		}
		for range 2 { // a first start on a busy machine may be too slow
			dir, err := os.MkdirTemp("", "browser")
			require.NoError(t, err)
			t.Cleanup(func() { _ = os.RemoveAll(dir) }) // the browser may still write there
			path, shot := filepath.Join(dir, "page.html"), filepath.Join(dir, "page.png")
			require.NoError(t, os.WriteFile(path, page, 0o644))
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			cmd := exec.CommandContext(ctx, browser, append([]string{"--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars",
				"--user-data-dir=" + filepath.Join(dir, "profile"), fmt.Sprintf("--window-size=%d,%d", width, height),
				"--dump-dom", "--screenshot=" + shot}, append(args, "file://"+path)...)...)
			cmd.WaitDelay = time.Second // its children hold the pipe
			var out, errs bytes.Buffer
			cmd.Stdout, cmd.Stderr = &out, &errs
			err = cmd.Run()
			cancel()
			data, missing := os.ReadFile(shot)
			if missing == nil && strings.Contains(out.String(), "</html>") {
				picture, err := png.Decode(bytes.NewReader(data))
				require.NoError(t, err)
				return out.String(), picture
			}
			reason = fmt.Sprintf("%s showed no page: %v\n%s", browser, err, errs.String())
		}
		break
	}
	if os.Getenv("TPUSTRATEGY_REQUIRE_BROWSER") != "" {
		t.Fatal(reason)
	}
	t.Skip(reason)
	return "", nil
}
