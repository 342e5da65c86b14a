package imports

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// Limits are the limits in size.txt for the sizes of the module, its packages and their types.
type Limits []Limit

// Limit contains the limits of one subject.
type Limit struct {
	// Subject is a package, a package and a type of it ("strategy.TPUStrategy"), Whole, Harness or Other.
	Subject string
	Counts  []Count
}

// Count limits the number of lines, files, up, names, methods or markers (lines with a marker word
// among 1,000 lines of text) of a subject. Check tolerates one percent more than Most, so that a
// small change does not need a new limit.
type Count struct {
	Of   string
	Most int
}

// Subjects that are not packages: the product, the packages that only tests import, the
// documentation pages, and every package without a line in size.txt.
const (
	Whole   = "module"
	Harness = "internal/test"
	Pages   = "pages"
	Other   = "other"
)

// ParseLimits parses limits. A line has a subject, a colon, and pairs of a count and a number.
func ParseLimits(text string) (limits Limits, err error) {
	number := 0
	for line := range strings.Lines(text) {
		number++
		line, _, _ = strings.Cut(line, "#")
		subject, list, ok := strings.Cut(strings.TrimSpace(line), ":")
		if subject == "" {
			continue
		}
		words := strings.Fields(list)
		if !ok || len(words) == 0 || len(words)%2 != 0 {
			return nil, fmt.Errorf("size.txt:%d: want \"subject: count number ...\", not %q", number, line)
		}
		l := Limit{Subject: subject}
		for pair := range slices.Chunk(words, 2) {
			most, err := strconv.Atoi(pair[1])
			if err != nil {
				return nil, fmt.Errorf("size.txt:%d: %q is not a number", number, pair[1])
			}
			l.Counts = append(l.Counts, Count{Of: pair[0], Most: most})
		}
		limits = append(limits, l)
	}
	return limits, nil
}

// String writes the counts as ParseLimits reads them.
func (l Limit) String() string {
	var b strings.Builder
	b.WriteString(l.Subject + ":")
	for _, c := range l.Counts {
		fmt.Fprintf(&b, " %s %d", c.Of, c.Most)
	}
	return b.String()
}

// Check returns the measured counts in the form of limits, and one sentence for each count that
// exceeds its limit by more than one percent.
func (l Limits) Check(found map[string]Size) (now Limits, faults []string) {
	var product, harness Size
	others := slices.Sorted(maps.Keys(found))
	for path, s := range found {
		if path == Pages {
			continue
		}
		total := &product
		if InHarness(path) {
			total = &harness
		}
		total.Lines += s.Lines
		total.Files += s.Files
		total.Comments += s.Comments
		total.Marked += s.Marked
	}
	others = slices.DeleteFunc(others, func(path string) bool { return path == Pages })
	for _, limit := range l {
		others = slices.DeleteFunc(others, func(path string) bool { return path == limit.Subject })
	}
	for _, limit := range l {
		is := Limit{Subject: limit.Subject}
		for _, c := range limit.Counts {
			have, where, ok := 0, limit.Subject, true
			switch limit.Subject {
			case Whole:
				have, ok = product.of(c.Of, "")
			case Harness:
				have, ok = harness.of(c.Of, "")
			case Other:
				for _, path := range others {
					if n, known := found[path].of(c.Of, ""); n > have || !known {
						have, where, ok = n, path, known
					}
				}
			default:
				path, typ := limit.Subject, ""
				if at := strings.LastIndex(path, "."); at > strings.LastIndex(path, "/") {
					path, typ = path[:at], path[at+1:]
				}
				size, there := found[path]
				have, ok = size.of(c.Of, typ)
				ok = ok && there
			}
			switch {
			case !ok:
				faults = append(faults, fmt.Sprintf("size.txt: %s has no %s", limit.Subject, c.Of))
			case have > c.Most+c.Most/100:
				faults = append(faults, fmt.Sprintf("%s has %s %d, and size.txt allows %d", where, c.Of, have, c.Most))
			}
			is.Counts = append(is.Counts, Count{Of: c.Of, Most: have})
		}
		now = append(now, is)
	}
	return now, faults
}

// InHarness reports whether a package is in a folder internal/test.
func InHarness(path string) bool { return strings.Contains("/"+path, "/"+Harness+"/") }

// of returns a count of a package, or of one of its types.
func (s Size) of(what, typ string) (n int, ok bool) {
	switch {
	case typ != "":
		n, ok = s.Methods[typ]
		return n, ok && what == "methods"
	case what == "lines":
		return s.Lines, true
	case what == "files":
		return s.Files, true
	case what == "up":
		return s.Up, true
	case what == "names":
		return s.Names, true
	case what == "markers":
		return s.markersPerThousand(), true
	}
	return 0, false
}
