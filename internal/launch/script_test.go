package launch_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/internal/command"
	"github.com/tpustrategy/tpustrategy/internal/launch"
)

// cloud is a made-up cloud: what is there is a file each.
type cloud struct {
	t    *testing.T
	dir  string
	text string
	args []string // of the script
}

func newCloud(t *testing.T, job launch.Job) *cloud {
	text, err := job.Text(launch.Script)
	require.NoError(t, err)
	c := &cloud{t: t, dir: t.TempDir(), text: text}
	for _, folder := range []string{"bin", "state"} {
		require.NoError(t, os.Mkdir(filepath.Join(c.dir, folder), 0o755))
	}
	stand, err := filepath.Abs("testdata/bin/cloud")
	require.NoError(t, err)
	for _, name := range []string{"gcloud", "kubectl", "docker", "go"} {
		require.NoError(t, os.Symlink(stand, filepath.Join(c.dir, "bin", name)))
	}
	require.NoError(t, os.WriteFile(filepath.Join(c.dir, "script"), []byte(text), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(c.dir, "libtpu"), []byte("plugin"), 0o600))
	return c
}

// run runs the script, with a signal to all its processes where it stops, and returns its code and
// what it said.
func (c *cloud) run(signal syscall.Signal, env ...string) (code int, said string) {
	calls := filepath.Join(c.dir, "calls")
	old, err := filepath.Glob(calls + "*")
	require.NoError(c.t, err)
	for _, path := range old {
		require.NoError(c.t, os.Remove(path))
	}
	cmd := exec.Command("bash", append([]string{filepath.Join(c.dir, "script")}, c.args...)...)
	cmd.Dir = c.dir
	cmd.Env = append(os.Environ(), append([]string{"PATH=" + filepath.Join(c.dir, "bin") + ":" + os.Getenv("PATH"),
		"STATE=" + filepath.Join(c.dir, "state"), "CALLS=" + calls, "CODES=" + filepath.Join(c.dir, "codes"), "AT=", "HOW=",
		"LATE=", "KEEPS=", "REMOTE=",
		"PROJECT=my-project", "ZONE=us-west4-a", "CLUSTER=my-cluster", "LIBTPU=" + filepath.Join(c.dir, "libtpu"),
		"PAUSE=0.01", "TRIES=3", "TMPDIR=" + c.dir}, env...)...)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.WaitDelay = 5 * time.Second
	require.NoError(c.t, cmd.Start())
	if signal != 0 {
		require.Eventually(c.t, func() bool { _, err := os.Stat(calls + ".stopped"); return err == nil }, 10*time.Second,
			2*time.Millisecond, "%s", &out)
		require.NoError(c.t, syscall.Kill(-cmd.Process.Pid, signal))
	}
	_ = cmd.Wait()
	return cmd.ProcessState.ExitCode(), out.String()
}

// left is what is there.
func (c *cloud) left() (names []string) {
	entries, err := os.ReadDir(filepath.Join(c.dir, "state"))
	require.NoError(c.t, err)
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// calls are the calls of the last run.
func (c *cloud) calls() []string {
	data, err := os.ReadFile(filepath.Join(c.dir, "calls"))
	require.NoError(c.t, err)
	return strings.Split(strings.TrimSpace(string(data)), "\n")
}

// jobs are one of each place.
func jobs(t *testing.T) map[string]launch.Job {
	return map[string]launch.Job{
		"tpu-vm": job(t, "v5litepod-16", launch.TPUVM),
		"queued": with(job(t, "v5litepod-16", launch.Queued), func(j *launch.Job) { j.Slices, j.Spot = 2, true }),
		"gce":    job(t, "v6e-8", launch.GCE),
		"mig":    with(job(t, "tpu7x-16", launch.MIG), func(j *launch.Job) { j.Spot = true }),
		"gke":    with(job(t, "v6e-16", launch.GKE), func(j *launch.Job) { j.Slices = 2 }),
	}
}

func TestAScriptMakesRunsAndDeletes(t *testing.T) {
	for name, job := range jobs(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCloud(t, job)
			code, said := c.run(0)
			assert.Zero(t, code, said)
			assert.Empty(t, c.left(), said)
			assert.Contains(t, said, "launch: done")
			assert.Contains(t, said, "launch: deleted")
			created, deleted := 0, 0
			for i, call := range c.calls() {
				if strings.Contains(call, " create ") || strings.HasPrefix(call, "kubectl apply") {
					created++
				}
				if strings.Contains(call, " delete ") {
					deleted++
				}
				assert.False(t, strings.HasPrefix(call, "go build") && created > 0,
					"call %d: what is rented waits for the compiler", i)
			}
			assert.Positive(t, created)
			assert.GreaterOrEqual(t, deleted, created)
		})
	}
}

// Whatever call is interrupted, and whatever call fails, nothing that is billed stays. Here it is
// the calls that make something, and one of each other kind for one place; `make test-launch` takes
// each call of each script.
func TestWhereverAScriptIsStoppedNothingStays(t *testing.T) {
	all := os.Getenv("TPUSTRATEGY_LAUNCH_ALL") == "1"
	for name, job := range jobs(t) {
		c := newCloud(t, job)
		code, said := c.run(0)
		require.Zero(t, code, said)
		calls, seen := c.calls(), map[string]bool{}
		for at, call := range calls {
			words := strings.Fields(call)
			kind := strings.Join(words[:min(len(words), 4)], " ")
			makes := strings.Contains(call, " create ") || strings.HasPrefix(call, "kubectl apply")
			if !all && !makes && (name != "mig" || seen[kind]) {
				continue
			}
			seen[kind] = true
			t.Run(name+"/"+strconv.Itoa(at), func(t *testing.T) {
				t.Parallel()
				c := newCloud(t, job)
				number := "AT=" + strconv.Itoa(at+1)
				if all || makes {
					code, said := c.run(0, number, "HOW=fail")
					assert.Empty(t, c.left(), "call %d (%s) fails: %s", at, call, said)
					if makes {
						assert.NotZero(t, code, said)
					}
				}
				signal, want := syscall.SIGINT, 130
				if at%3 == 2 {
					signal, want = syscall.SIGTERM, 143
				}
				code, said := c.run(signal, number, "HOW=stop")
				assert.Empty(t, c.left(), "%v in call %d (%s): %s", signal, at, call, said)
				if makes || strings.Contains(call, "start.sh") { // it may be at its end anyway in others
					assert.Equal(t, want, code, said)
				}
			})
		}
	}
}

func TestWhatAppearsAfterTheInterruptIsDeletedToo(t *testing.T) {
	c := newCloud(t, job(t, "v5p-32", launch.TPUVM))
	at := 0
	for i, call := range strings.Split(firstCalls(t, c), "\n") {
		if strings.Contains(call, "tpu-vm create") {
			at = i + 1
		}
	}
	require.Positive(t, at)
	code, said := c.run(syscall.SIGINT, "AT="+strconv.Itoa(at), "HOW=stop", "LATE=0.2", "PAUSE=1")
	assert.Equal(t, 130, code, said)
	assert.Empty(t, c.left(), said)
}

func firstCalls(t *testing.T, c *cloud) string {
	code, said := c.run(0)
	require.Zero(t, code, said)
	return strings.Join(c.calls(), "\n")
}

func TestWhatIsNotOursIsLeftAlone(t *testing.T) {
	c := newCloud(t, job(t, "v5litepod-16", launch.TPUVM))
	theirs := filepath.Join(c.dir, "state", "tpu.multihost")
	require.NoError(t, os.WriteFile(theirs, nil, 0o600))
	code, said := c.run(0)
	assert.Equal(t, 1, code)
	assert.Contains(t, said, "there is a tpu multihost already, which is left alone")
	assert.Equal(t, []string{"tpu.multihost"}, c.left())
}

func TestWhatCannotBeDeletedIsNamed(t *testing.T) {
	c := newCloud(t, job(t, "v5litepod-16", launch.TPUVM))
	code, said := c.run(0, "KEEPS=1")
	assert.Equal(t, 1, code)
	assert.Contains(t, said, "STILL THERE, AND BILLED: tpu multihost; delete it with: gcloud compute tpus tpu-vm "+
		"delete multihost --project=my-project --zone=us-west4-a")

	c = newCloud(t, job(t, "v5litepod-16", launch.TPUVM))
	code, said = c.run(0, "KEEP=1")
	assert.Zero(t, code, said)
	assert.Contains(t, said, "kept, and billed: tpu multihost; delete it with: gcloud compute tpus tpu-vm delete")
	assert.Equal(t, []string{"tpu.multihost"}, c.left())
}

func TestAnInterruptedProgramIsStartedAgain(t *testing.T) {
	start := func(t *testing.T, job launch.Job, codes, state string, env ...string) (int, string, *cloud) {
		c := newCloud(t, job)
		require.NoError(t, os.WriteFile(filepath.Join(c.dir, "codes"), []byte(codes), 0o600))
		if state != "" {
			require.NoError(t, os.WriteFile(filepath.Join(c.dir, "state", "tpu.state"), []byte(state), 0o600))
		}
		code, said := c.run(0, env...)
		assert.Empty(t, c.left(), said)
		return code, said, c
	}
	again := with(job(t, "v5litepod-16", launch.TPUVM), func(j *launch.Job) { j.Restarts = 2 })
	code, said, c := start(t, again, "75\n69\n0\n", "")
	assert.Zero(t, code, said)
	assert.Equal(t, 3, strings.Count(strings.Join(c.calls(), "\n"), "start.sh 1"), said)

	code, said, c = start(t, again, "75\n0\n", "PREEMPTED\n")
	assert.Zero(t, code, said)
	assert.Contains(t, said, "the machines are gone, or do not answer again and again: making new ones")
	assert.Equal(t, 2, strings.Count(strings.Join(c.calls(), "\n"), "tpu-vm create"), said)

	code, said, c = start(t, again, "69\n69\n0\n", "")
	assert.Zero(t, code, said)
	assert.Equal(t, 2, strings.Count(strings.Join(c.calls(), "\n"), "tpu-vm create"),
		"a machine that does not answer twice is replaced: %s", said)

	code, said, _ = start(t, again, "75\n75\n75\n", "")
	assert.Equal(t, command.Interrupted, code, said)
	assert.Contains(t, said, "not started again: that was done 2 times")

	// A failure after a checkpoint is tried again, until nothing new is saved.
	code, said, c = start(t, with(again, func(j *launch.Job) { j.Restarts = 20 }), "76\n77\n77\n76\n1\n77\n77\n77\n0\n",
		"", "FRUITLESS=3")
	assert.Equal(t, 77, code, said)
	assert.Contains(t, said, "it failed 4 times in a row without a new checkpoint")
	assert.Equal(t, 8, strings.Count(strings.Join(c.calls(), "\n"), "start.sh 1"), said)
	assert.Equal(t, 1, strings.Count(strings.Join(c.calls(), "\n"), "tpu-vm create"), "the slice stays: %s", said)
	assert.FileExists(t, filepath.Join(c.dir, "multihost.log"), "what the program said is kept before the slice goes")

	code, said, c = start(t, again, "134\n", "")
	assert.Equal(t, 134, code, "before a first checkpoint: %s", said)
	assert.Equal(t, 1, strings.Count(strings.Join(c.calls(), "\n"), "start.sh 1"), said)

	code, said, c = start(t, again, "3\n", "")
	assert.Equal(t, 3, code, said)
	assert.Equal(t, 1, strings.Count(strings.Join(c.calls(), "\n"), "start.sh 1"), said)
}

func TestAProgramForANewerCLibraryIsRefusedBeforeAnythingIsRented(t *testing.T) {
	c := newCloud(t, job(t, "v5litepod-16", launch.TPUVM))
	code, said := c.run(0, "NEEDS=2.38")
	assert.Equal(t, 1, code)
	assert.Contains(t, said, "the program needs C library GLIBC_2.38, and the image has GLIBC_2.35")
	assert.Contains(t, said, "CC='zig cc -target x86_64-linux-gnu.2.35'")
	assert.Len(t, c.calls(), 1, "go build")

	// With zig it is built anew, for the image.
	require.NoError(t, os.WriteFile(filepath.Join(c.dir, "bin", "zig"), []byte("#!/bin/sh\n"), 0o755))
	code, said = c.run(0, "NEEDS=2.38", "CC=")
	assert.Zero(t, code, said)
	assert.Equal(t, 2, strings.Count(strings.Join(c.calls(), "\n"), "go build"))
	assert.Empty(t, c.left())
}

func TestTheProgramGoesThroughABucketOnce(t *testing.T) {
	c := newCloud(t, with(job(t, "tpu7x-16", launch.MIG), func(j *launch.Job) { j.Bucket = "gs://bucket/jobs" }))
	code, said := c.run(0)
	assert.Zero(t, code, said)
	all := strings.Join(c.calls(), "\n")
	assert.Equal(t, 1, strings.Count(all, "gcloud storage cp "+c.dir), all)
	assert.Equal(t, 2,
		strings.Count(all, "--command=gcloud storage cp gs://bucket/jobs/multihost.tar.gz . && mkdir -p multihost"), all)
	assert.NotContains(t, all, "compute scp")
	assert.Contains(t, all, "gcloud storage rm gs://bucket/jobs/multihost.tar.gz")
}

// TestTheScriptSaysWhereTheTimeWent: as the first machine knows it, before that is deleted, and
// however the program ends.
func TestTheScriptSaysWhereTheTimeWent(t *testing.T) {
	const line = "goodput 91.2 % of 2h3m0s in 3 lives: compile 4.1 %"
	for place, codes := range map[string]string{"tpu-vm": "0\n", "queued": "3\n", "gke": ""} {
		c := newCloud(t, jobs(t)[place])
		require.NoError(t, os.WriteFile(filepath.Join(c.dir, "codes"), []byte(codes), 0o600))
		require.NoError(t, os.WriteFile(filepath.Join(c.dir, "codes.goodput"), []byte(line+"\n"), 0o600))
		_, said := c.run(0)
		assert.Contains(t, said, "launch: "+line, place)
		assert.Less(t, strings.Index(said, line), strings.Index(said, "launch: deleting"), place)
		assert.Empty(t, c.left(), said)
	}
}

func TestAFileOfTheProgramIsFetchedHoweverItEnds(t *testing.T) {
	for place, want := range map[string]string{
		"tpu-vm": "gcloud compute tpus tpu-vm scp multihost:multihost/accept.jsonl.gz multihost-accept.jsonl.gz --worker=0",
		"mig":    "gcloud compute scp multihost-1:multihost/accept.jsonl.gz multihost-1-accept.jsonl.gz --project=my-project",
	} {
		c := newCloud(t, with(jobs(t)[place], func(j *launch.Job) { j.Fetch = "accept.jsonl.gz" }))
		require.NoError(t, os.WriteFile(filepath.Join(c.dir, "codes"), []byte("6\n6\n"), 0o600))
		code, said := c.run(0)
		assert.Equal(t, 6, code, said)
		assert.Contains(t, strings.Join(c.calls(), "\n"), want)
	}
}

func TestABinaryThatIsThereIsNotBuilt(t *testing.T) {
	c := newCloud(t, job(t, "v5litepod-16", launch.TPUVM))
	code, said := c.run(0, "BINARY="+filepath.Join(c.dir, "libtpu"))
	assert.Zero(t, code, said)
	assert.NotContains(t, strings.Join(c.calls(), "\n"), "go build")
}

// TestWhatTheEnvironmentGivesIsChecked: nothing is called with a name that is none, and nothing of
// what it names is touched.
func TestWhatTheEnvironmentGivesIsChecked(t *testing.T) {
	hostile := map[string][]string{
		"NAME": {"prod slice", "x;touch PWNED", "$(touch PWNED)", "`touch PWNED`", "-rf", "prod\nslice", "x'y", "X", "9a",
			"a-", "a.b", "prod|x", "a/b", "a&b",
			strings.Repeat("a", 41), "é", "a\x1b[31m", "prod*", "{a,b}", "~"},
		"PROJECT":  {"p;touch PWNED", "--flag", "a b", "$(touch PWNED)", "p\nq"},
		"ZONE":     {"us;touch PWNED", "us west4-a", "us", "--zone", "us-west4-a\n", "us-$(touch PWNED)-a"},
		"IMAGE":    {"i|e touch PWNED", "-f", "i j", "a\nb", "$(touch PWNED)", "a\"b"},
		"TRIES":    {"a[$(touch PWNED)]", "-1", "1 2", "x", "09"},
		"PAUSE":    {"1;touch PWNED", "-1", "infinity"},
		"RESTARTS": {"a[$(touch PWNED)]", "x"},
		"BUCKET":   {"gs://b;touch PWNED", "s3://bucket", "gs://bucket/a b", "gs://bucket/$(touch PWNED)", "-x"},
		"CLUSTER":  {"c;touch PWNED", "c d", "--all", "9c"},
		"LOCATION": {"l;touch PWNED", "us central1", "--all"},
	}
	for place, job := range jobs(t) {
		t.Run(place, func(t *testing.T) {
			t.Parallel()
			c := newCloud(t, job)
			for _, theirs := range []string{"tpu.prod", "request.prod", "instance.prod", "group.prod", "policy.prod",
				"pool.prod-0", "job.prod"} {
				require.NoError(t, os.WriteFile(filepath.Join(c.dir, "state", theirs), nil, 0o600))
			}
			before := c.left()
			for variable, values := range hostile {
				if of, ok := map[string]bool{"CLUSTER": true, "LOCATION": true, "BUCKET": false, "RESTARTS": false}[variable]; ok &&
					of != (place == "gke") {
					continue // the place does not read it
				}
				for _, value := range values {
					code, said := c.run(0, variable+"="+value)
					assert.Equal(t, 2, code, "%s=%q: %s", variable, value, said)
					assert.Contains(t, said, "launch: "+variable+" is ", "%q", value)
					assert.NotContains(t, said, "\x1b")
					assert.NoFileExists(t, filepath.Join(c.dir, "calls"), "%s=%q: something was called", variable, value)
				}
			}
			assert.Equal(t, before, c.left())
			assert.NoFileExists(t, filepath.Join(c.dir, "PWNED"))
		})
	}
}

// hostileWords are arguments that shells, YAML and Kubernetes would like to read otherwise.
var hostileWords = []string{"", " ", "a,b", "a, b", `","`, "it's", `"`, `\`, `\n`, "a\nb", "a\r\nb", "\t", "\x1b[31m",
	"\x7f", "\u0085", "\u2028", "\u2029", "\ufeff", "\u00a0",
	"\U0001f600", "\ufffe", "$HOME", "$(touch PWNED)", "$$", "$$(X)", "$é", "$", "`touch PWNED`", "; touch PWNED",
	"& touch PWNED", "-rf", "*", "~", "!!", "#x", "{a,b}", "null", "true", "1e3",
	"END_OF_MANIFEST", "NAME_OF_THE_JOB", "IMAGE_OF_THE_JOB", "image: \"IMAGE_OF_THE_JOB\"", "  name: \"NAME_OF_THE_JOB\"",
	"\x01\x02", "é", "''", "'\\''", "a\n", "%s", "&"}

// TestArgumentsReachTheProgramThroughBothShells: the arguments of the job, which are UTF-8, and
// those of the script's own call, which may be any bytes.
func TestArgumentsReachTheProgramThroughBothShells(t *testing.T) {
	own := append(slices.Clone(hostileWords), "\xef\xbf\xbd")
	words := append(slices.Clone(own), "\xff\xfe", "a\xe2\x80b")
	c := newCloud(t, with(job(t, "v5litepod-16", launch.TPUVM), func(j *launch.Job) { j.Arguments = own }))
	c.args = words
	remote := filepath.Join(c.dir, "remote")
	require.NoError(t, os.MkdirAll(filepath.Join(remote, "multihost"), 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(remote, "multihost", "start.sh"),
		[]byte(`shift; for word in "$@"; do printf '%s\0' "$word"; done >arguments`), 0o600))
	code, said := c.run(0, "REMOTE="+remote)
	require.Zero(t, code, said)
	got, err := os.ReadFile(filepath.Join(remote, "arguments"))
	require.NoError(t, err)
	assert.Equal(t, strings.Join(append(own, words...), "\x00")+"\x00", string(got))
	for _, dir := range []string{c.dir, remote} {
		assert.NoFileExists(t, filepath.Join(dir, "PWNED"))
	}
	assert.NotContains(t, said, "\x1b")
}
