package gomlxexamples

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// apart is how far values are from those of another run: the largest difference, relative to 1 or to
// the value where that is larger.
func apart(got, want []float64) (float64, error) {
	if len(got) != len(want) {
		return 0, fmt.Errorf("%d values, want %d", len(got), len(want))
	}
	most := 0.0
	for i := range got {
		d := math.Abs(got[i]-want[i]) / max(1, math.Abs(want[i]))
		if math.IsNaN(d) {
			return 0, fmt.Errorf("value %d is %v, want %v", i, got[i], want[i])
		}
		most = max(most, d)
	}
	return most, nil
}

// points are those of a plot, in the order of the file: what and at which step, and the value.
type points struct {
	names  []string
	values []float64
}

// readPoints reads the file that GoMLX writes beside checkpoints.
func readPoints(checkpoint string) (p points, err error) {
	f, err := os.Open(filepath.Join(checkpoint, "training_plot_points.json"))
	if err != nil {
		return p, err
	}
	defer f.Close()
	for d := json.NewDecoder(f); ; {
		var one struct {
			MetricName  string
			Step, Value float64
		}
		if err := d.Decode(&one); err == io.EOF {
			return p, nil
		} else if err != nil {
			return p, err
		}
		p.names, p.values = append(p.names, fmt.Sprintf("%s at %v", one.MetricName, one.Step)), append(p.values, one.Value)
	}
}

// expected says what of a first run is not as the program promises; steps of losses are compared elsewhere.
func (p program) expected(r *run) []string {
	var wrong []string
	miss := func(ok bool, format string, arguments ...any) {
		if !ok {
			wrong = append(wrong, fmt.Sprintf(format, arguments...))
		}
	}
	miss(len(r.losses) == p.steps, "%d losses, want %d", len(r.losses), p.steps)
	if p.bar {
		miss(strings.Contains(r.output, "Global Step") && (p.unfinished || strings.Contains(r.output, "100%")),
			"no finished progress bar")
	}
	if p.plots {
		miss(len(r.points.values) > 0, "no points of plots")
	}
	if p.resumed != 0 {
		saved, err := filepath.Glob(filepath.Join(p.kept(r), "checkpoint-*.json"))
		miss(err == nil && len(saved) > 0, "no checkpoint in %s", p.kept(r))
	}
	if p.writes != "" {
		info, err := os.Stat(filepath.Join(r.dir, p.writes))
		miss(err == nil && info.Size() > 0, "no file %s", p.writes)
	}
	return wrong
}

// kept is the folder of the program's checkpoints.
func (p program) kept(r *run) string {
	if p.home[1] != "" {
		return filepath.Join(r.dir, "home", p.home[1], "checkpoint")
	}
	return r.checkpoint()
}

// again is up to which step the second run trains.
func (p program) again() int { return p.steps + max(p.resumed, 0) }

// went says what of a second run, on the checkpoint of the first, is not as it should be.
func (p program) went(r *run) []string {
	want := max(p.resumed, 0)
	if len(r.losses) != want {
		return []string{fmt.Sprintf("%d losses after the restart, want %d: the checkpoint was not read", len(r.losses), want)}
	}
	return nil
}

// said is what a program without losses prints, less what names or explains the backend, a backend's
// words for an error and its lines, and the times of log lines.
func (r *run) said() string {
	return logTime.ReplaceAllString(backendLine.ReplaceAllString(r.output, ""), "")
}

var (
	backendLine = regexp.MustCompile(`(?m)^(Backend|tpustrategy:|Error:|\t\.\.\./).*\n`)
	logTime     = regexp.MustCompile(`(?m)^[IWE]\d{4} [\d:.]+ +\d+ `)
)

// split counts the data and the variables of the training step that the backend says it split.
func (r *run) split() (data, variables int) {
	begin := stepLine.FindStringIndex(r.output)
	if begin == nil {
		return 0, 0
	}
	step, _, _ := strings.Cut(r.output[begin[1]:], `tpustrategy: program "`)
	for _, parameter := range parameterLine.FindAllStringSubmatch(step, -1) {
		switch {
		case parameter[2] == "whole":
		case strings.HasPrefix(parameter[1], "/"):
			variables++
		default:
			data++
		}
	}
	return data, variables
}

// stepLine begins the explanation of the training step.
var stepLine = regexp.MustCompile(`(?m)^tpustrategy: program "Trainer[^"]*" on `)

// parameterLine is a parameter's line: name, shape, shape on one device, split.
var parameterLine = regexp.MustCompile(`(?m)^tpustrategy:   (\S.*?) +\w+\[[^\]]*\] +\[[^\]]*\] +(\S+)  `)
