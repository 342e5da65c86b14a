package watchdog

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/internal/test/hangtest"
	"github.com/tpustrategy/tpustrategy/storage"
)

func record(host, hosts int, step int64) Record {
	return Record{Version: Version, Run: "r", Host: host, Hosts: hosts, Step: step, Sequence: step, State: Running,
		Activity: "launch", Time: time.Unix(1000+step, 0)}
}

// boards returns a board in a folder and a board in an object store.
func boards(t *testing.T) map[string]*RecordStore {
	dir := t.TempDir()
	folder, err := OpenRecordStore(t.Context(), dir)
	require.NoError(t, err)
	store, err := storage.Directory(filepath.Join(t.TempDir(), "store"))
	require.NoError(t, err)
	return map[string]*RecordStore{"folder": folder, "store": NewRecordStore(store)}
}

func TestRecordsAreReadAsTheyWerePut(t *testing.T) {
	for name, b := range boards(t) {
		t.Run(name, func(t *testing.T) {
			all, unreadable, err := b.ReadAll(t.Context(), 0)
			require.NoError(t, err)
			assert.Empty(t, all, "of an empty place")
			assert.Empty(t, unreadable)
			loss := JSONFloat(math.NaN())
			for host := range 3 {
				r := record(host, 3, 7)
				r.Loss, r.NonFatalError = &loss, strings.Repeat("long ", 2000*host)
				require.NoError(t, b.Put(t.Context(), &r))
				r = record(host, 3, 8) // a shorter record follows
				r.Loss = &loss
				require.NoError(t, b.Put(t.Context(), &r))
			}
			require.NoError(t, b.writeObject(t.Context(), fmt.Sprintf(goroutinesFile, 1), []byte("goroutine 1")))
			all, unreadable, err = b.ReadAll(t.Context(), 0)
			require.NoError(t, err)
			assert.Empty(t, unreadable)
			require.Len(t, all, 3)
			assert.Equal(t, int64(8), all[2].Step)
			assert.True(t, math.IsNaN(float64(*all[2].Loss)))
			require.NoError(t, b.removeStale(t.Context(), 1))
			all, _, err = b.ReadAll(t.Context(), 0)
			require.NoError(t, err)
			assert.Len(t, all, 1)
			require.NoError(t, b.Close())
		})
	}
}

func TestRecordsThatCannotBeReadAreNamed(t *testing.T) {
	dir := t.TempDir()
	b, err := OpenRecordStore(t.Context(), dir)
	require.NoError(t, err)
	r := record(0, 4, 7)
	whole, err := r.encode()
	require.NoError(t, err)
	folder := filepath.Join(dir, "status")
	require.NoError(t, os.Mkdir(folder, 0o755))
	write := func(name, text string) {
		require.NoError(t, os.WriteFile(filepath.Join(folder, name), []byte(text), 0o644))
	}
	write("host-0000.json", string(whole))
	write("host-0001.json", string(whole[:len(whole)/2]))
	write("host-0002.json", string(whole)) // a record of another host
	write("host-0003.json", "{}\n")
	write("host-3.json", string(whole)) // not the name of a record
	write("notes.txt", "x")
	all, unreadable, err := b.ReadAll(t.Context(), 0)
	require.NoError(t, err)
	require.Len(t, all, 1)
	require.Len(t, unreadable, 3)
	for i, want := range []string{"host-0001.json in " + dir + ": record: ", "it is of host 0",
		"its format is version 0"} {
		assert.ErrorContains(t, unreadable[i], want)
		assert.ErrorIs(t, unreadable[i], errRecord)
	}
	_, err = OpenRecordStore(t.Context(), "")
	assert.ErrorContains(t, err, "an empty path")
	_, err = OpenRecordStore(t.Context(), "nowhere://bucket/run")
	assert.Error(t, err, "a scheme that nobody registered")
}

// An attacker with access to the folder may create a pipe, a device or a link at the path of a
// record.
func TestWhatIsNoRecordsFileIsNamedAndNeitherReadNorWrittenThrough(t *testing.T) {
	dir := t.TempDir()
	b, err := OpenRecordStore(t.Context(), dir)
	require.NoError(t, err)
	whole := record(0, 8, 7)
	require.NoError(t, b.Put(t.Context(), &whole))
	at := func(name string) string { return filepath.Join(dir, "status", name) }
	victim := filepath.Join(dir, "victim")
	require.NoError(t, os.WriteFile(victim, []byte("of another program"), 0o644))
	require.NoError(t, syscall.Mkfifo(at("host-0001.json"), 0o644))
	require.NoError(t, os.Symlink("/dev/zero", at("host-0002.json")))
	hangtest.Within(t, func() {
		all, unreadable, err := b.ReadAll(t.Context(), 8)
		require.NoError(t, err)
		assert.Len(t, all, 1)
		if assert.Len(t, unreadable, 2) {
			assert.ErrorContains(t, unreadable[0], "host-0001.json in "+dir)
			assert.ErrorContains(t, unreadable[0], "a pipe")
		}
	})
	for i, planted := range []string{"host-0003.json", "host-0004.goroutines.txt"} {
		require.NoError(t, os.Symlink(victim, at(planted)))
		r := record(3+i, 8, 7)
		require.NoError(t, b.Put(t.Context(), &r))
		require.NoError(t, b.writeObject(t.Context(), fmt.Sprintf(goroutinesFile, 3+i), []byte("goroutine 1")))
	}
	text, err := os.ReadFile(victim)
	require.NoError(t, err)
	assert.Equal(t, "of another program", string(text))
	all, _, err := b.ReadAll(t.Context(), 0)
	require.NoError(t, err)
	assert.Len(t, all, 3)
}

// FuzzParse checks that a record which is parsed from any bytes is consistent, can be written and
// read again, and is diagnosed and shown without control characters. The bytes are the file itself,
// or the fields of a valid record, so that most inputs are parsed.
func FuzzParse(f *testing.F) {
	r := record(1, 4, 7)
	whole, err := r.encode()
	require.NoError(f, err)
	f.Add(whole, "", int64(0), 0.0, uint8(0))
	f.Add(append(whole, "rest of a longer one"...), "input", int64(1), 6.5, uint8(1))
	f.Add([]byte(`{"version":1,"hosts":2,"host":5,"state":"running"}`+"\n"), "\x1b[2J\xff\n", int64(math.MinInt64),
		math.NaN(), uint8(7))
	f.Add([]byte(
		`{"version":1,"hosts":65536,"host":65535,"state":"stuck","loss":"-Inf","took":{"input":1e308},"findings":[{"host":-9,"cause":"silent"}]}`+"\n"),
		"exchange", int64(math.MaxInt64), math.Inf(1), uint8(255))
	f.Fuzz(func(t *testing.T, data []byte, text string, n int64, x float64, choice uint8) {
		text = strings.ToValidUTF8(text, "\ufffd") // as JSON has it
		now := time.Unix(2000, 0)
		var all []Record
		if r, err := parseRecord(data); err == nil {
			all = append(all, r)
		} else {
			assert.ErrorIs(t, err, errRecord)
		}
		loss := JSONFloat(x)
		if math.IsNaN(x) || math.IsInf(x, 0) { // only Loss may be NaN or infinite
			x = -1
		}
		kinds := []string{text, "input", "launch", "result", "exchange", "compile", "save", "hook"}
		hosts := 1 + int(choice%5)
		for host := range hosts {
			r := Record{Version: Version, Run: text, Host: host, Hosts: hosts, Name: text, PID: int(n), Machine: text,
				Sequence: n, Time: now.Add(time.Duration(n)),
				State: []State{Running, Stuck, Ended}[(int(choice)+host)%3], Step: max(n>>host, 0), Steps: n, Rate: x, Loss: &loss,
				LossStep:   n,
				Checkpoint: n, Activity: kinds[(int(choice)+host)%len(kinds)], ActivityName: text, Duration: x, Timeout: x / 2,
				ActivityIndex: n, LastDurations: map[string]float64{text: x, "input": x},
				TimeFractions: map[string]float64{"input": x, "launch": -x}, Window: x, NonFatalError: text, Error: text,
				Findings: []Finding{{Host: int(choice) - 3, Name: text, Cause: Silent, Text: text, Duration: x}}}
			line, err := r.encode()
			require.NoError(t, err)
			back, err := parseRecord(line)
			require.NoError(t, err, "%s", line)
			again, err := back.encode()
			require.NoError(t, err)
			assert.Equal(t, string(line), string(again))
			all = append(all, back)
		}
		for _, r := range all {
			require.True(t, r.Host >= 0 && r.Host < r.Hosts && r.Step >= 0)
		}
		for _, of := range [][]Record{all, all[:1]} {
			var view Monitor
			var l RunStatus
			for i := range 3 {
				l = view.newStatus(text, of, []error{errors.New(text)}, now.Add(time.Duration(i)*40*time.Second))
				for k := range of {
					of[k].Sequence++
				}
			}
			hosts := view.currentHosts()
			hosts[min(of[0].Host, len(hosts)-1)] = Host{Record: of[0], isSelf: true}
			diagnose(hosts, 1)
			if len(l.Hosts) > 64 { // the other hosts are missing
				l.Hosts = l.Hosts[:64]
			}
			_, err := json.Marshal(l)
			require.NoError(t, err)
			for _, line := range append(l.Lines(0), l.Lines(40)...) {
				if strings.ContainsAny(line, "\x1b\n\r\a\u009b") || !utf8.ValidString(line) {
					t.Fatalf("%q is shown", line)
				}
			}
		}
	})
}

func TestNumbersThatJSONDoesNotHave(t *testing.T) {
	for _, x := range []float64{0, -1.5, math.Inf(1), math.Inf(-1)} {
		b, err := json.Marshal(JSONFloat(x))
		require.NoError(t, err)
		var back JSONFloat
		require.NoError(t, json.Unmarshal(b, &back))
		assert.Equal(t, x, float64(back))
	}
	var n JSONFloat
	assert.Error(t, json.Unmarshal([]byte(`"many"`), &n))
}

func TestAViewGoesByItsOwnClock(t *testing.T) {
	start := time.Unix(5000, 0)
	see := func(v *Monitor, all []Record, at time.Duration) { v.update(all, at, start.Add(at)) }
	v := Monitor{fixedRun: true}
	v.setRun("r", 3)
	old := record(2, 3, 99)
	old.Run = "an earlier one"
	see(&v, []Record{record(0, 3, 1), record(1, 3, 1), old}, 0)
	see(&v, []Record{record(0, 3, 2), record(1, 3, 1), old}, 4*time.Second)
	see(&v, []Record{record(0, 3, 2), record(1, 3, 1), old}, 7*time.Second)
	all := v.currentHosts()
	assert.True(t, all[0].Alive)
	assert.True(t, all[0].hasChanged)
	assert.Equal(t, 7.0, all[1].Silent)
	assert.False(t, all[1].Alive)
	assert.True(t, all[2].Missing, "a record of another run is none")
	assert.Equal(t, -66*time.Minute-42*time.Second, all[0].clockSkew.Round(time.Second))

	// A view follows the newest run unless a host of the current run is alive.
	v = Monitor{}
	see(&v, []Record{old, record(0, 3, 1)}, 0)
	assert.Equal(t, "an earlier one", v.run)
	assert.Len(t, v.hosts, 3)
	newer := []Record{old, record(0, 3, 100)}
	newer[0].Sequence++
	see(&v, newer, time.Second)
	assert.Equal(t, "r", v.run, "it is newer")
	newer[1].Sequence++
	see(&v, newer, 2*time.Second)
	old.Step, old.Time, old.Sequence = 200, time.Unix(2000, 0), 200
	see(&v, []Record{old, newer[1]}, 3*time.Second)
	assert.Equal(t, "r", v.run, "it is alive")
}

// A host does not become silent while the reader cannot read records.
func TestATimeInWhichThePlaceCannotBeReadIsNoSilence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newMemory()
		b := NewRecordStore(view{store, 0})
		r := record(0, 1, 1)
		require.NoError(t, b.Put(t.Context(), &r))
		var v Monitor
		for range 2 {
			store.fail[0] = errors.New("no route to host")
			time.Sleep(time.Minute)
			_, err := v.Status(t.Context(), b)
			require.ErrorContains(t, err, "no route to host")
			delete(store.fail, 0)
			time.Sleep(time.Second)
			l, err := v.Status(t.Context(), b)
			require.NoError(t, err)
			assert.LessOrEqual(t, l.Hosts[0].Silent, 1.0)
		}
	})
}
