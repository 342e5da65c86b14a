package progress

import (
	"bytes"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/tpustrategy/tpustrategy/internal/files"
	"github.com/tpustrategy/tpustrategy/report/phase"
)

// DefaultRecordFile returns the path of the record file that programs share:
// tpustrategy/compilations.jsonl in the user's cache directory. It is empty if there is no cache
// directory.
func DefaultRecordFile() string {
	dir, err := os.UserCacheDir()
	if err != nil {
		return ""
	}
	return filepath.Join(dir, "tpustrategy", "compilations.jsonl")
}

// recordEntry is one line of a record file: the duration of a compilation.
type recordEntry struct {
	Name      string  `json:"name"`
	Target    string  `json:"target"`
	Devices   int     `json:"devices"`
	TextBytes int     `json:"text_bytes"`
	Seconds   float64 `json:"seconds"`
}

const (
	// minRecorded is the minimum duration of a compilation that is recorded.
	minRecorded = time.Second
	// maxLengthRatio is the maximum ratio of the text lengths of similar compilations.
	maxLengthRatio = 1.5
	// maxRecord is the size in bytes above which the older half of a record file is removed.
	maxRecord = 128 << 10
)

// readRecord reads the durations of earlier compilations from a record file. It omits lines that it
// cannot parse.
func readRecord(path string) (entries []recordEntry) {
	data, err := files.ReadFile(path, 2*maxRecord)
	if err != nil {
		return nil
	}
	for line := range bytes.Lines(data) {
		var c recordEntry
		if json.Unmarshal(line, &c) == nil && c.Seconds > 0 && c.Seconds < 1e6 && c.TextBytes > 0 {
			entries = append(entries, c)
		}
	}
	return entries
}

// estimate is the expected duration of a compilation; zero if it is unknown.
type estimate struct {
	expected time.Duration // duration of the most similar compilation
	longest  time.Duration // longest duration of the similar compilations
}

// defaultLimit is the time after which a compilation without an estimate counts as late.
const defaultLimit = time.Minute

// isExceeded reports whether a stage has taken longer than the estimate.
func (e estimate) isExceeded(elapsed time.Duration) bool {
	if e.longest > 0 {
		return elapsed > e.longest
	}
	return elapsed > defaultLimit
}

// estimateDuration estimates the duration of a compilation from similar ones in a record file.
func estimateDuration(path string, p phase.Phase) (e estimate) {
	if path == "" || p.TextBytes == 0 {
		return e
	}
	best := math.Inf(1)
	for _, c := range readRecord(path) {
		distance := math.Abs(math.Log(float64(c.TextBytes) / float64(p.TextBytes)))
		if distance > math.Log(maxLengthRatio) || deviceKind(c.Target) != deviceKind(p.Target) {
			continue
		}
		if c.Target != p.Target || c.Devices != p.Replicas*p.LogicalDevices {
			distance += 0.2
		}
		if c.Name != p.Name {
			distance += 0.1
		}
		duration := time.Duration(c.Seconds * float64(time.Second))
		e.longest = max(e.longest, duration)
		if distance <= best { // of equally similar compilations, the newer one
			best, e.expected = distance, duration
		}
	}
	return e
}

// deviceKind returns the device kind in the name of a compilation target: "v5e" for "2x v5e:4x4".
func deviceKind(target string) string {
	if i := strings.LastIndexByte(target, ' '); i >= 0 {
		target = target[i+1:]
	}
	target, _, _ = strings.Cut(target, ":")
	return target
}

// appendRecord adds the duration of a compilation to a record file. It ignores errors.
func appendRecord(path string, p phase.Phase, duration time.Duration) {
	if path == "" || duration < minRecorded {
		return
	}
	line, err := json.Marshal(recordEntry{p.Name, p.Target, p.Replicas * p.LogicalDevices, p.TextBytes,
		math.Round(duration.Seconds()*100) / 100})
	if err != nil || os.MkdirAll(filepath.Dir(path), 0o700) != nil {
		return
	}
	if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() && info.Size() > maxRecord {
		trimRecord(path)
	}
	f, err := files.OpenFileNoFollow(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return
	}
	// A single write keeps lines of several processes intact.
	_, _ = f.Write(append(line, '\n'))
	_ = f.Close()
}

// trimRecord removes the older half of a record file.
func trimRecord(path string) {
	data, err := files.ReadFile(path, 64*maxRecord)
	if err != nil {
		return
	}
	data = data[len(data)-min(len(data), maxRecord/2):]
	data = data[bytes.IndexByte(data, '\n')+1:]
	f, err := os.CreateTemp(filepath.Dir(path), ".compilations-")
	if err != nil {
		return
	}
	_, err = f.Write(data)
	if closed := f.Close(); err == nil {
		err = closed
	}
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		_ = os.Remove(f.Name())
	}
}
