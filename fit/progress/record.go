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

// RecordFile returns the path of the record that programs share: compilations.jsonl in the folder
// tpustrategy of the user's cache directory. It is empty if there is no cache directory.
func RecordFile() string {
	dir, err := os.UserCacheDir()
	if err != nil {
		return ""
	}
	return filepath.Join(dir, "tpustrategy", "compilations.jsonl")
}

// compilation is one line of a record.
type compilation struct {
	Name      string  `json:"name"`
	Target    string  `json:"target"`
	Devices   int     `json:"devices"`
	TextBytes int     `json:"text_bytes"`
	Seconds   float64 `json:"seconds"`
}

const (
	// worthNoting is the minimum duration of a compilation that is recorded.
	worthNoting = time.Second
	// alike is the maximum ratio of the text lengths of similar compilations.
	alike = 1.5
	// maxRecord is the size in bytes above which the older half of a record is removed.
	maxRecord = 128 << 10
)

// read returns the compilations of a record, without the lines that it cannot parse.
func read(path string) (all []compilation) {
	data, err := files.ReadFile(path, 2*maxRecord)
	if err != nil {
		return nil
	}
	for line := range bytes.Lines(data) {
		var c compilation
		if json.Unmarshal(line, &c) == nil && c.Seconds > 0 && c.Seconds < 1e6 && c.TextBytes > 0 {
			all = append(all, c)
		}
	}
	return all
}

// estimate is the expected duration of a compilation; zero if it is not known.
type estimate struct {
	like    time.Duration // duration of the most similar compilation
	longest time.Duration // longest duration of the similar compilations
}

// unguided is the time after which a compilation without an estimate counts as having an unknown
// end.
const unguided = time.Minute

// over reports whether a stage has taken longer than the estimate.
func (k estimate) over(passed time.Duration) bool {
	if k.longest > 0 {
		return passed > k.longest
	}
	return passed > unguided
}

// knownOf returns the estimate of a compilation from a record.
func knownOf(path string, p phase.Phase) (k estimate) {
	if path == "" || p.TextBytes == 0 {
		return k
	}
	best := math.Inf(1)
	for _, c := range read(path) {
		apart := math.Abs(math.Log(float64(c.TextBytes) / float64(p.TextBytes)))
		if apart > math.Log(alike) || kind(c.Target) != kind(p.Target) {
			continue
		}
		if c.Target != p.Target || c.Devices != p.Replicas*p.LogicalDevices {
			apart += 0.2
		}
		if c.Name != p.Name {
			apart += 0.1
		}
		took := time.Duration(c.Seconds * float64(time.Second))
		k.longest = max(k.longest, took)
		if apart <= best { // of equally similar compilations, the newer one
			best, k.like = apart, took
		}
	}
	return k
}

// kind returns the kind of devices of a target: "v5e" for "2x v5e:4x4".
func kind(target string) string {
	if i := strings.LastIndexByte(target, ' '); i >= 0 {
		target = target[i+1:]
	}
	target, _, _ = strings.Cut(target, ":")
	return target
}

// remember adds a compilation to a record. Errors are ignored.
func remember(path string, p phase.Phase, took time.Duration) {
	if path == "" || took < worthNoting {
		return
	}
	line, err := json.Marshal(compilation{p.Name, p.Target, p.Replicas * p.LogicalDevices, p.TextBytes, math.Round(took.Seconds()*100) / 100})
	if err != nil || os.MkdirAll(filepath.Dir(path), 0o700) != nil {
		return
	}
	if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() && info.Size() > maxRecord {
		shorten(path)
	}
	f, err := files.OpenFileNoFollow(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return
	}
	// A single write keeps lines of several processes intact.
	_, _ = f.Write(append(line, '\n'))
	_ = f.Close()
}

// shorten removes the older half of a record.
func shorten(path string) {
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
