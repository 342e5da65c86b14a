package hostfacts

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/tpustrategy/tpustrategy/errkind"
)

// Facts contains the properties of a machine. A field is empty or 0 if the property is unknown.
type Facts struct {
	// HugePages is the mode of transparent huge pages: always, madvise or never.
	HugePages string `json:"huge_pages,omitempty"`
	// MemoryBytes is the size of the memory, and AvailableBytes is the memory that is available now.
	MemoryBytes    int64 `json:"memory_bytes,omitempty"`
	AvailableBytes int64 `json:"available_bytes,omitempty"`
	// CLibrary is the version of the GNU C library, such as 2.35.
	CLibrary string `json:"c_library,omitempty"`
	// Kernel is the kernel's release.
	Kernel string `json:"kernel,omitempty"`
	// LockedMemory is the limit of locked memory of a process, as reported by ulimit -l: a number
	// of bytes, or unlimited.
	LockedMemory string `json:"locked_memory,omitempty"`
	// CanExceedLockedMemory is true if the process may exceed that limit because it has CAP_IPC_LOCK.
	CanExceedLockedMemory bool `json:"locks_any,omitempty"`
	// Root is true if the process runs as root.
	Root bool `json:"root,omitempty"`
}

// Finding is a property of the machine that can make a TPU job slow or fail.
type Finding struct {
	// Subject is the property, Value its value, and Consequence the effect on jobs.
	Subject     string `json:"subject"`
	Value       string `json:"got"`
	Consequence string `json:"why"`
	// Fix is the command that corrects the problem.
	Fix string `json:"do"`
}

// String returns the finding in one line.
func (f Finding) String() string {
	return f.Subject + ": " + f.Value + "; " + f.Consequence + ": " + f.Fix
}

const hugePagesPath = "/sys/kernel/mm/transparent_hugepage/enabled"

// HugePagesCommand is a shell command that enables transparent huge pages for all programs until
// the next boot.
const HugePagesCommand = `sudo sh -c "echo always > ` + hugePagesPath + `"`

// ReadFacts returns the properties of this machine. root is prepended to the paths of all files
// that are read; it is empty except in tests.
func ReadFacts(root string) Facts {
	text := func(path string) string { return ReadText(filepath.Join(root, path)) }
	meminfo := text("/proc/meminfo")
	f := Facts{
		HugePages:   bracketedWord(text(hugePagesPath)),
		MemoryBytes: meminfoBytes(meminfo, "MemTotal:"), AvailableBytes: meminfoBytes(meminfo, "MemAvailable:"),
		CLibrary:              cLibraryVersion(root),
		Kernel:                text("/proc/sys/kernel/osrelease"),
		CanExceedLockedMemory: hasCapability(text("/proc/self/status"), 14),
		Root:                  os.Geteuid() == 0,
	}
	if soft := fieldsAfter(text("/proc/self/limits"), "Max locked memory"); len(soft) > 0 {
		f.LockedMemory = soft[0]
	}
	return f
}

// ReadText returns the contents of a small file without surrounding space. If the file cannot be
// read, it returns an empty string.
func ReadText(path string) string {
	data, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(data))
}

// bracketedWord returns the word in brackets of a line such as "always [madvise] never".
func bracketedWord(line string) string {
	_, rest, _ := strings.Cut(line, "[")
	word, _, _ := strings.Cut(rest, "]")
	return word
}

// fieldsAfter returns the words that follow the given name in the line that starts with this name.
func fieldsAfter(text, name string) []string {
	for line := range strings.Lines(text) {
		if rest, ok := strings.CutPrefix(line, name); ok {
			return strings.Fields(rest)
		}
	}
	return nil
}

// meminfoBytes returns the size in bytes from a line such as "MemTotal: 263849192 kB".
func meminfoBytes(meminfo, name string) int64 {
	words := fieldsAfter(meminfo, name)
	if len(words) == 0 {
		return 0
	}
	kib, err := strconv.ParseInt(words[0], 10, 64)
	if err != nil || kib < 0 || kib > 1<<40 {
		return 0
	}
	return kib << 10
}

// hasCapability reports whether the bit of a Linux capability is set in a line of status such as
// "CapEff: 000001ffffffffff".
func hasCapability(status string, bit int) bool {
	words := fieldsAfter(status, "CapEff:")
	if len(words) == 0 {
		return false
	}
	set, err := strconv.ParseUint(words[0], 16, 64)
	return err == nil && set>>bit&1 == 1
}

// minLockedMemory is the limit that "Run containers without privileged mode" of
// docs.cloud.google.com/kubernetes-engine/docs/how-to/tpus sets before it starts a program with a TPU.
const minLockedMemory = 68719476736

// minMemory is the memory that must be available for the Go runtime, the plugin (0.6 GB), a
// compilation and a batch of data.
const minMemory = 8 << 30

// Findings returns problems of the machine that should be corrected before a TPU job runs. It
// returns nil if there are none.
func (f Facts) Findings() []Finding {
	var found []Finding
	if f.HugePages != "" && f.HugePages != "always" {
		found = append(found, Finding{"transparent huge pages", f.HugePages,
			"the TPU runtime of v5e and newer starts and stops far slower without them", HugePagesCommand})
	}
	if f.AvailableBytes > 0 && f.AvailableBytes < minMemory {
		found = append(found, Finding{"free memory",
			strconv.FormatFloat(float64(f.AvailableBytes)/(1<<30), 'f', 1, 64) + " GiB",
			"the plugin, a compilation and a batch may need more", "ps -eo rss,pid,args --sort=-rss | head"})
	}
	if limit, err := strconv.ParseInt(f.LockedMemory, 10, 64); err == nil && limit < minLockedMemory &&
		!f.CanExceedLockedMemory {
		found = append(found, Finding{"limit of locked memory",
			strconv.FormatFloat(float64(limit)/(1<<20), 'f', 1, 64) + " MiB",
			"the TPU runtime locks the memory that it copies from, and in a pod may not start",
			"ulimit -l 68719476736, or in a pod securityContext: {privileged: true}"})
	}
	return found
}

// ErrNotELF reports that a file is not an ELF program or library.
var ErrNotELF = errkind.New(errkind.ValueError, "not an ELF file")
