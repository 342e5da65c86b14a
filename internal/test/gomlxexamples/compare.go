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

// apart returns the largest difference between two runs. A difference is relative to the value if
// the absolute value is larger than 1.
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

// points contains the points of a plot in file order. A name includes the metric and the step.
type points struct {
	names  []string
	values []float64
}

// readPoints reads the plot file in a checkpoint folder of GoMLX.
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

// expected returns the differences between a first run and the program's expectations. It does not
// compare the losses.
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

// kept returns the folder of the program's checkpoints.
func (p program) kept(r *run) string {
	if p.home[1] != "" {
		return filepath.Join(r.dir, "home", p.home[1], "checkpoint")
	}
	return r.checkpoint()
}

// again returns the last step of the second run.
func (p program) again() int { return p.steps + max(p.resumed, 0) }

// went returns the errors of a second run, which resumes from the checkpoint of the first.
func (p program) went(r *run) []string {
	want := max(p.resumed, 0)
	if len(r.losses) != want {
		return []string{fmt.Sprintf("%d losses after the restart, want %d: the checkpoint was not read", len(r.losses), want)}
	}
	return nil
}

// said returns the output of a program without losses. It omits lines and log times that depend on
// the backend.
func (r *run) said() string {
	return logTime.ReplaceAllString(backendLine.ReplaceAllString(r.output, ""), "")
}

var (
	backendLine = regexp.MustCompile(`(?m)^(Backend|tpustrategy:|Error:|\t\.\.\./).*\n`)
	logTime     = regexp.MustCompile(`(?m)^[IWE]\d{4} [\d:.]+ +\d+ `)
)

// split returns how many data tensors and variables of the training step the backend reports as
// split.
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

// stepLine matches the start of the backend's report about the training step.
var stepLine = regexp.MustCompile(`(?m)^tpustrategy: program "Trainer[^"]*" on `)

// parameterLine matches a parameter in the report: name, shape, shape on one device, split.
var parameterLine = regexp.MustCompile(`(?m)^tpustrategy:   (\S.*?) +\w+\[[^\]]*\] +\[[^\]]*\] +(\S+)  `)
