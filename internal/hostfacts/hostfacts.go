package hostfacts

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/tpustrategy/tpustrategy/errkind"
)

// Facts are what was read. A field is empty or 0 where the machine does not tell.
type Facts struct {
	// HugePages is the mode of transparent huge pages: always, madvise or never.
	HugePages string `json:"huge_pages,omitempty"`
	// MemoryBytes is the machine's memory, and AvailableBytes what programs can have of it now.
	MemoryBytes    int64 `json:"memory_bytes,omitempty"`
	AvailableBytes int64 `json:"available_bytes,omitempty"`
	// CLibrary is the version of the GNU C library, such as 2.35.
	CLibrary string `json:"c_library,omitempty"`
	// Kernel is the kernel's release.
	Kernel string `json:"kernel,omitempty"`
	// LockedMemory is the most memory that a process may lock, as ulimit -l says it: a number of
	// bytes, or unlimited.
	LockedMemory string `json:"locked_memory,omitempty"`
	// LocksAny is whether the process may lock memory beyond that limit: it has CAP_IPC_LOCK.
	LocksAny bool `json:"locks_any,omitempty"`
	// Root is whether the process runs as root.
	Root bool `json:"root,omitempty"`
}

// Finding is something about the machine that costs time or fails later.
type Finding struct {
	// Subject is what is meant, Got what it is, and Why what follows from that.
	Subject string `json:"subject"`
	Got     string `json:"got"`
	Why     string `json:"why"`
	// Do is the command that fixes it.
	Do string `json:"do"`
}

// Text returns the finding in one line.
func (f Finding) Text() string { return f.Subject + ": " + f.Got + "; " + f.Why + ": " + f.Do }

const hugePages = "/sys/kernel/mm/transparent_hugepage/enabled"

// HugePagesCommand makes transparent huge pages available to all programs until the next boot.
const HugePagesCommand = `sudo sh -c "echo always > ` + hugePages + `"`

// Read reads the facts. root is put before each path; empty is the machine's own root.
func Read(root string) Facts {
	text := func(path string) string { return Text(filepath.Join(root, path)) }
	meminfo := text("/proc/meminfo")
	f := Facts{
		HugePages:   chosen(text(hugePages)),
		MemoryBytes: kibibytes(meminfo, "MemTotal:"), AvailableBytes: kibibytes(meminfo, "MemAvailable:"),
		CLibrary: cLibrary(root),
		Kernel:   text("/proc/sys/kernel/osrelease"),
		LocksAny: capable(text("/proc/self/status"), 14),
		Root:     os.Geteuid() == 0,
	}
	if soft := entry(text("/proc/self/limits"), "Max locked memory"); len(soft) > 0 {
		f.LockedMemory = soft[0]
	}
	return f
}

// Text returns the text of a small file without the spaces around it; it is empty if it cannot be read.
func Text(path string) string {
	data, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(data))
}

// chosen is the word in brackets of a line such as "always [madvise] never".
func chosen(line string) string {
	_, rest, _ := strings.Cut(line, "[")
	word, _, _ := strings.Cut(rest, "]")
	return word
}

// entry returns the words after a name that begins a line.
func entry(text, name string) []string {
	for line := range strings.Lines(text) {
		if rest, ok := strings.CutPrefix(line, name); ok {
			return strings.Fields(rest)
		}
	}
	return nil
}

// kibibytes is the number of bytes in a line such as "MemTotal:  263849192 kB".
func kibibytes(meminfo, name string) int64 {
	words := entry(meminfo, name)
	if len(words) == 0 {
		return 0
	}
	kib, err := strconv.ParseInt(words[0], 10, 64)
	if err != nil || kib < 0 || kib > 1<<40 {
		return 0
	}
	return kib << 10
}

// capable is whether a line such as "CapEff: 000001ffffffffff" has the bit of a capability.
func capable(status string, bit int) bool {
	words := entry(status, "CapEff:")
	if len(words) == 0 {
		return false
	}
	set, err := strconv.ParseUint(words[0], 16, 64)
	return err == nil && set>>bit&1 == 1
}

// enoughLocked is the limit that "Run containers without privileged mode" of
// docs.cloud.google.com/kubernetes-engine/docs/how-to/tpus sets before a program with a TPU starts.
const enoughLocked = 68719476736

// enough is the least memory that has to be free: the runtime, the plugin of 0.6 GB, a program's
// compilation and one copy of a batch.
const enough = 8 << 30

// Findings returns what to fix before a job with a TPU runs on the machine, or nil.
func (f Facts) Findings() []Finding {
	var found []Finding
	if f.HugePages != "" && f.HugePages != "always" {
		found = append(found, Finding{"transparent huge pages", f.HugePages,
			"the TPU runtime of v5e and newer starts and stops far slower without them", HugePagesCommand})
	}
	if f.AvailableBytes > 0 && f.AvailableBytes < enough {
		found = append(found, Finding{"free memory", strconv.FormatFloat(float64(f.AvailableBytes)/(1<<30), 'f', 1, 64) + " GiB",
			"the plugin, a compilation and a batch may need more", "ps -eo rss,pid,args --sort=-rss | head"})
	}
	if limit, err := strconv.ParseInt(f.LockedMemory, 10, 64); err == nil && limit < enoughLocked && !f.LocksAny {
		found = append(found, Finding{"limit of locked memory", strconv.FormatFloat(float64(limit)/(1<<20), 'f', 1, 64) + " MiB",
			"the TPU runtime locks the memory that it copies from, and in a pod may not start",
			"ulimit -l 68719476736, or in a pod securityContext: {privileged: true}"})
	}
	return found
}

// ErrNotELF reports a file that is no ELF program or library.
var ErrNotELF = errkind.New(errkind.ValueError, "not an ELF file")
