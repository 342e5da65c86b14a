package accept

import (
	"bufio"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"

	"github.com/tpustrategy/tpustrategy/errkind"
)

// maxLine bounds a line of an archive that is read, in bytes.
const maxLine = 4 << 20

// ReadArchive reads what [WriteArchive] wrote.
func ReadArchive(r io.Reader) (*Report, error) {
	fail := func(err error) (*Report, error) {
		return nil, &errkind.Fault{Op: "accept: read archive", Err: err, Hint: "give the file that tpustrategy accept wrote",
			Class: errkind.DataLossError}
	}
	packed, err := gzip.NewReader(r)
	if err != nil {
		return fail(err)
	}
	lines := bufio.NewScanner(packed)
	lines.Buffer(nil, maxLine)
	var report *Report
	for lines.Scan() {
		if report == nil {
			report = &Report{}
			if err = json.Unmarshal(lines.Bytes(), report); err == nil && report.Version != Version {
				err = fmt.Errorf("version %d, and this program reads %d", report.Version, Version)
			}
		} else {
			var o Outcome
			err = json.Unmarshal(lines.Bytes(), &o)
			report.Outcomes = append(report.Outcomes, o)
		}
		if err != nil {
			return fail(err)
		}
	}
	if err := lines.Err(); err != nil {
		return fail(err)
	}
	if report == nil {
		return fail(io.ErrUnexpectedEOF)
	}
	return report, nil
}
