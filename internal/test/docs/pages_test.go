//go:build cgo

package docs_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/fit/trainer"
	"github.com/tpustrategy/tpustrategy/gomlx"
	"github.com/tpustrategy/tpustrategy/internal/test/plugintest"
)

// block is a fenced block of a page: its language, the word after the language, and its text.
type block struct {
	page, language, word, text string
	line                       int
}

// fenced returns the pages and their fenced blocks.
func fenced(t *testing.T) (names []string, blocks []block) {
	for _, pattern := range []string{"../README.md", "../CONTRIBUTING.md", "*.md", "../examples/*/README.md"} {
		found, err := filepath.Glob(pattern)
		require.NoError(t, err)
		names = append(names, found...)
	}
	fence := regexp.MustCompile("(?ms)^ *```(\\w*) ?(\\w*)\n(.*?)^ *```$")
	for _, name := range names {
		page, err := os.ReadFile(name)
		require.NoError(t, err)
		for _, at := range fence.FindAllSubmatchIndex(page, -1) {
			part := func(i int) string { return string(page[at[2*i]:at[2*i+1]]) }
			blocks = append(blocks, block{name, part(1), part(2), part(3), strings.Count(string(page[:at[0]]), "\n") + 1})
		}
		command := regexp.MustCompile(
			`(?m)^ {4}(\$|go|make|tpustrategy|cd|gcloud|docker|python|GOMLX_BACKEND=\S+) .*`).FindString(
			string(fence.ReplaceAll(page, nil)))
		assert.Empty(t, command, "%s: write it as ```sh", name)
	}
	require.Greater(t, len(blocks), 80)
	return names, blocks
}

// prelude makes the commands of the pages fast. Training programs run with their number of steps
// divided by 50, on CPU devices instead of a slice, and append their results to $OUTCOMES. For
// commands that call other services or run for minutes, only the flags or the syntax are checked.
const prelude = `
set -u -o pipefail
trained() { # the program and its arguments
	"$BIN/$@" -plugin "$PLUGIN" | tee -a "$OUTCOMES"
}
program() {
	local name=$1 steps=600; shift
	[[ "$*" =~ -steps\ ([0-9]+) ]] && steps=${BASH_REMATCH[1]}
	case "$FULL $name $*" in
	*"quickstart ") TPUSTRATEGY_CPU_PLUGIN=$PLUGIN "$BIN/$name" ;;
	*"mnist "*"-topology "*) "$BIN/$name" "$@" -topology cpu:8 ;;
	"1 mnist "*) trained "$name" "$@" ;;
	" mnist "*) trained "$name" "$@" -batch 720 -steps $((steps / 50)) ;;
	*"multihost "*) trained "$name" "$@" -steps 4 ;;
	*) "$BIN/$name" "$@" -help 2>/dev/null ;;
	esac
}
go() {
	case "$1 ${2-}" in
	"run ./cmd/tpustrategy") shift 2; tpustrategy "$@" ;;
	"run ./examples/"*) local name=${2#./examples/}; shift 2; program "$name" "$@" ;;
	"run "*) [ "$3" = github.com/tpustrategy/tpustrategy/cmd/tpustrategy ]; shift 3; tpustrategy "$@" ;;
	"test "*) [ -d "$ROOT/${*: -1}" ] || [ -d "$ROOT/$(printf '%s\n' "$@" | grep ^./)" ] ;;
	"doc "*) (builtin cd "$ROOT" && command go "$@") ;;
	"build "*) local last=${*: -1}; [ "$last" = ./... ] || [ -d "$ROOT/${last#github.com/tpustrategy/tpustrategy}" ] ;;
	*) command go "$@" ;;
	esac
}
tpustrategy() {
	case "$WORD $*" in
	"tpu "* | *" accept "* | *" install "* | *" watch gs:"*) "$BIN/tpustrategy" "$@" --help ;;
	*" compile "*) "$BIN/tpustrategy" "${@/#v[0-9]*e:*/cpu:8}" ;;
	*) "$BIN/tpustrategy" "$@" ;;
	esac
}
make() { command make -n -C "$ROOT" "$@"; }
bash() { command bash -n "$1"; }
cd() { builtin cd "$ROOT/$1" 2>/dev/null || builtin cd "$1"; }
env() { command env -u NONE true; }
gcloud() { true; }
kubectl() { cat >/dev/null; }
docker() { [ -f "$ROOT/$3" ]; }
`

// TestThePagesCommandsRun runs the sh blocks of each page in order, in one folder per page. A block
// contains only commands, or commands after "$ " with their output. A command whose output is an
// error must fail. In a block with the word "same", the output must match, but the page may omit
// lines. Other words name a requirement: tpu is a TPU or its compiler, cloud is a Google Cloud
// account, and slow is a running time of minutes. Commands without their requirement are not run.
//
// Each training command must run at least one step, including commands that resume a run of the
// page. With TPUSTRATEGY_FULL_PAGES=1, the commands of examples/mnist run unchanged with all of
// their steps.
func TestThePagesCommandsRun(t *testing.T) {
	plugin := plugintest.Path(t, "cpu")
	root, err := filepath.Abs("..")
	require.NoError(t, err)
	bin := t.TempDir()
	out, err := exec.Command("go", "build", "-ldflags=-w", "-o", bin+"/", "../cmd/tpustrategy", "../examples/quickstart",
		"../examples/mnist", "../examples/multihost", "../examples/gpt").CombinedOutput()
	require.NoError(t, err, "%s", out)
	names, blocks := fenced(t)
	for _, name := range names {
		var script strings.Builder
		same := map[string]string{} // expected lines by output file
		for _, b := range blocks {
			if b.page != name || b.language != "sh" {
				continue
			}
			assert.Contains(t, []string{"", "same", "tpu", "cloud", "slow"}, b.word, "%s:%d", name, b.line)
			script.WriteString("WORD=" + b.word + "\n")
			for _, c := range b.commands() {
				if b.word == "slow" {
					out, err := exec.Command("bash", "-n", "-c", c.text).CombinedOutput()
					assert.NoError(t, err, "%s: %s\n%s", name, c.text, out)
					continue
				}
				want := "-eq"
				if c.fails && b.word == "" {
					want = "-ne"
				}
				to := "/dev/stdout"
				if b.word == "same" {
					to = fmt.Sprintf("same%d", len(same))
					same[to] = c.prints
				}
				script.WriteString("echo; echo " + inQuotes("+ "+c.text) + "\n{ " + c.text + "\n} </dev/null >" + to +
					"\ncode=$?; [ $code " + want + " 0 ] || { echo exit code $code; exit 1; }\n")
			}
		}
		t.Run(strings.TrimPrefix(name, "../"), func(t *testing.T) {
			dir := t.TempDir()
			require.NoError(t, os.WriteFile(filepath.Join(dir, "go.mod"), []byte("module own\n"), 0o600))
			require.NoError(t, os.Mkdir(filepath.Join(dir, "tpustrategy"), 0o700))
			for _, program := range []string{"train", "program", "your-program", "tpustrategy/tpustrategy"} { // not ours
				require.NoError(t, os.WriteFile(filepath.Join(dir, program), []byte("#!/bin/sh\n"), 0o700))
			}
			cmd := exec.Command("bash", "-c", prelude+script.String())
			cmd.Dir = dir
			cmd.Env = append(os.Environ(), "ROOT="+root, "BIN="+bin, "PLUGIN="+plugin, "PJRT_PLUGIN_LIBRARY_PATH=",
				"OUTCOMES="+filepath.Join(dir, "outcomes"), "FULL="+os.Getenv("TPUSTRATEGY_FULL_PAGES"))
			out, err := cmd.CombinedOutput()
			require.NoError(t, err, "%s", out)
			requireSteps(t, filepath.Join(dir, "outcomes"), map[string]int{"tutorial.md": 4, "multihost.md": 1}[name])
			for file, shown := range same {
				printed, err := os.ReadFile(filepath.Join(dir, file))
				require.NoError(t, err)
				assert.True(t, piece(shown, string(printed)), "the page shows\n%s\nand the command prints\n%s", shown, printed)
			}
			for _, written := range map[string][]string{
				"tutorial.md": {"run/best", "run/curve.html", "run/events", "run/losses.csv", "model.safetensors",
					"split/checkpoints"},
			}[name] {
				_, err := os.Stat(filepath.Join(dir, written))
				assert.NoError(t, err)
			}
		})
	}
}

// requireSteps checks that each training run of a page ran steps, and that the page has at least n
// runs.
func requireSteps(t *testing.T, outcomes string, n int) {
	text, err := os.ReadFile(outcomes)
	if !errors.Is(err, fs.ErrNotExist) {
		require.NoError(t, err)
	}
	runs := 0
	for line := range strings.Lines(string(text)) {
		var run trainer.ClassifierResult
		if !strings.HasPrefix(line, "{") || json.Unmarshal([]byte(line), &run) != nil {
			continue
		}
		runs++
		assert.Greater(t, run.Steps, run.Resumed, "a command of the page takes no step: %s", line)
		assert.NotNil(t, run.Accuracy, line)
	}
	assert.GreaterOrEqual(t, runs, n, "the page has fewer training commands")
}

func inQuotes(text string) string { return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'" }

// shellCommand is a command of a block. It has one or more lines.
type shellCommand struct {
	text   string
	prints string
	fails  bool // the shown output is an error
}

func (b block) commands() (all []shellCommand) {
	shown := strings.Contains("\n"+b.text, "\n$ ")
	for line := range strings.SplitSeq(strings.TrimSuffix(b.text, "\n"), "\n") {
		last := len(all) - 1
		goesOn := last >= 0 && regexp.MustCompile(`(\\|\|)$`).MatchString(all[last].text)
		switch {
		case goesOn || last >= 0 && !shown && strings.HasPrefix(line, " "):
			all[last].text += "\n" + line
		case strings.HasPrefix(line, "$ "):
			all = append(all, shellCommand{text: line[2:]})
		case shown:
			all[last].prints += line + "\n"
			all[last].fails = all[last].fails || regexp.MustCompile(`^(tpustrategy|multihost): `).MatchString(line)
		case strings.TrimSpace(line) != "":
			all = append(all, shellCommand{text: line})
		}
	}
	return all
}

// TestThePagesBackendsOpen opens GoMLX's backend on CPU devices with the configurations of the
// pages.
func TestThePagesBackendsOpen(t *testing.T) {
	plugin := plugintest.Path(t, "cpu")
	names, _ := fenced(t)
	found, followed := 0, filepath.Join(t.TempDir(), "plan.json")
	require.NoError(t, os.WriteFile(followed,
		[]byte(`{"version": 1, "slice": "v5e:2x4", "replicas": 4, "axes": "logical=2"}`), 0o600))
	for _, name := range names {
		page, err := os.ReadFile(name)
		require.NoError(t, err)
		for _, m := range regexp.MustCompile(`GOMLX_BACKEND="?tpustrategy:([^\s"`+"`"+
			`]+)`).FindAllStringSubmatch(string(page), -1) {
			config := regexp.MustCompile(`topology=[^,]+`).ReplaceAllString(m[1], "devices=8")
			if config = strings.ReplaceAll(config, "plan=plan.json", "plan="+followed); !strings.Contains(config, "devices=") &&
				strings.Contains(config, followed) {
				config += ",devices=8"
			}
			b, err := gomlx.NewFromConfig(t.Context(), config+",plugin="+plugin, gomlx.Options{})
			if assert.NoError(t, err, "%s: %s", name, m[1]) {
				found++
				b.Finalize()
			}
		}
	}
	assert.GreaterOrEqual(t, found, 5)
}
