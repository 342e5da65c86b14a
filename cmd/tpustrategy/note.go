package main

import (
	"encoding/json"
	"errors"

	"github.com/tpustrategy/tpustrategy/fit/progress"
	"github.com/tpustrategy/tpustrategy/internal/child"
	"github.com/tpustrategy/tpustrategy/report/phase"
)

// progressNote is a progress message from a child process to its parent process. It contains either
// a line of text or a stage of a compilation.
type progressNote struct {
	Line string
	phase.Phase
	Failed bool // replaces Err, which is not encoded
}

// send sends the message to the parent process.
func (n progressNote) send() {
	if data, err := json.Marshal(n); err == nil {
		child.SendNotice(data)
	}
}

func noteLine(text string) { progressNote{Line: text}.send() }

func notePhase(p phase.Phase) {
	n := progressNote{Phase: p, Failed: p.Err != nil}
	n.Err = nil
	n.send()
}

// showNotes returns a function that decodes a progressNote and shows it on a progress line.
func showNotes(line *progress.Line) func(data []byte) {
	return func(data []byte) {
		var n progressNote
		switch err := json.Unmarshal(data, &n); {
		case err != nil:
		case n.Line != "":
			line.Update(n.Line)
		case n.Name != "":
			if n.Failed {
				n.Err = errors.New("the child says why")
			}
			line.SetPhase(n.Phase)
		}
	}
}
