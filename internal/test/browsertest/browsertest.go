package browsertest

import (
	"bytes"
	"context"
	"fmt"
	"html"
	"image"
	"image/draw"
	"image/png"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Window is the size of a browser window in pixels, and its color scheme.
type Window struct {
	Width, Height int
	Dark          bool
}

// Windows contains windows of desktop and phone size, each with light and dark colors.
var Windows = []Window{{1200, 1000, false}, {1200, 1000, true}, {400, 1600, false}, {400, 1600, true}}

// String returns a name for the window.
func (w Window) String() string {
	return fmt.Sprintf("%d-%s", w.Width, map[bool]string{false: "light", true: "dark"}[w.Dark])
}

// listen records the texts that a page draws on canvases, because the document does not contain
// them.
const listen = `<script>const written = [];
{ const fill = CanvasRenderingContext2D.prototype.fillText;
  CanvasRenderingContext2D.prototype.fillText = function (text, ...rest) {
    written.push({ text, size: parseFloat(/([\d.]+)px/.exec(this.font)[1]) * Math.hypot(this.getTransform().a, this.getTransform().b) / devicePixelRatio }); return fill.call(this, text, ...rest); };
}</script>`

// View is the result of a page in a window.
type View struct {
	Window
	// Found is the JSON encoding of the script's result.
	Found   []byte
	Picture image.Image
}

// Show opens a page in windows of several widths, and runs a script in each window after the page
// has loaded. The script is the body of an async function whose result is in the View. If
// TPUSTRATEGY_PICTURES is set, Show writes screenshots to this folder. The windows are frames of
// one browser window, because a browser window cannot be as narrow as a phone. If no browser is
// installed, the test is skipped, or fails if TPUSTRATEGY_REQUIRE_BROWSER is set.
func Show(t *testing.T, page []byte, script string, windows ...Window) (views []View) {
	t.Helper()
	var frames strings.Builder
	wide, high := 0, 0
	for i, w := range windows {
		text := strings.Replace(string(page), "<head>", "<head>"+listen, 1)
		end := strings.LastIndex(text, "</body>")
		text = text[:end] + fmt.Sprintf(`<script>(async () => {%[2]s})().then((found) => { `+
			`parent.document.body.dataset.found%[1]d = JSON.stringify(found ?? null); });</script>`, i, script) + text[end:]
		fmt.Fprintf(&frames,
			`<iframe width="%d" height="%d" style="border:0;display:block;color-scheme:%s" srcdoc="%s"></iframe>`, w.Width,
			w.Height,
			map[bool]string{false: "light", true: "dark"}[w.Dark], html.EscapeString(text))
		wide, high = max(wide, w.Width), high+w.Height
	}
	printed, picture := open(t, `<!DOCTYPE html><html><head><meta charset="utf-8"></head><body style="margin:0">`+
		frames.String()+`</body></html>`, wide, high)
	top := 0
	for i, w := range windows {
		at := regexp.MustCompile(fmt.Sprintf(`data-found%d="([^"]*)"`, i)).FindStringSubmatch(printed)
		require.Len(t, at, 2, "the page's program ran")
		part := image.NewNRGBA(image.Rect(0, 0, w.Width, w.Height))
		draw.Draw(part, part.Bounds(), picture, image.Pt(0, top), draw.Src)
		top += w.Height
		views = append(views, View{w, []byte(html.UnescapeString(at[1])), part})
		if dir := os.Getenv("TPUSTRATEGY_PICTURES"); dir != "" {
			var b bytes.Buffer
			require.NoError(t, png.Encode(&b, part))
			name := strings.NewReplacer("/", "_", " ", "_").Replace(t.Name()) + "-" + w.String() + ".png"
			require.NoError(t, os.WriteFile(filepath.Join(dir, name), b.Bytes(), 0o644))
		}
	}
	return views
}

// legible is a script that finds small texts and content wider than the window.
const legible = `
const wrong = [], wide = document.documentElement.scrollWidth;
if (wide > innerWidth) wrong.push("the page is " + wide + " pixels wide");
for (const { text, size } of written) if (size < 11.99) wrong.push(text + " is of " + size + " pixels");
const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
while (walk.nextNode()) {
  const text = walk.currentNode.data.trim(), of = walk.currentNode.parentElement;
  if (!text || of.closest("script, style, title")) continue;
  let size = parseFloat(getComputedStyle(of).fontSize);
  if (of.ownerSVGElement) size *= Math.hypot(of.getScreenCTM().a, of.getScreenCTM().b);
  if (size < 11.99) wrong.push(text + " is of " + size + " pixels");
  const range = document.createRange(); range.selectNodeContents(walk.currentNode);
  for (const box of range.getClientRects()) if (box.left < -0.5 || box.right > innerWidth + 0.5) wrong.push(text + " is beside the window");
}
return wrong;`

// Legible opens a page in each of the [Windows]. It fails the test if a text is smaller than 12
// pixels or content is wider than the window.
func Legible(t *testing.T, page []byte) {
	t.Helper()
	for _, v := range Show(t, page, legible, Windows...) {
		assert.Equal(t, "[]", string(v.Found), "%v", v.Window)
	}
}

// open starts the browser and returns the document and a screenshot.
func open(t *testing.T, page string, width, height int) (printed string, picture image.Image) {
	t.Helper()
	reason := "no chromium is installed"
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		browser, err := exec.LookPath(name)
		if err != nil {
			continue
		}
		for range 2 { // the first start may time out on a busy machine
			dir, err := os.MkdirTemp("", "browser")
			require.NoError(t, err)
			t.Cleanup(func() { _ = os.RemoveAll(dir) }) // the browser may still write to the folder
			path, shot := filepath.Join(dir, "page.html"), filepath.Join(dir, "page.png")
			require.NoError(t, os.WriteFile(path, []byte(page), 0o644))
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			cmd := exec.CommandContext(ctx, browser, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
				"--hide-scrollbars",
				"--user-data-dir="+filepath.Join(dir, "profile"), fmt.Sprintf("--window-size=%d,%d", width, height),
				"--dump-dom", "--screenshot="+shot, "file://"+path)
			cmd.WaitDelay = time.Second // child processes of the browser may keep the pipe open
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
