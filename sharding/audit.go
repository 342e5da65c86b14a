package sharding

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/tpustrategy/tpustrategy/errkind"
)

// Tensor describes a named tensor for [Audit].
type Tensor struct {
	Name         string
	Shape        []int
	ElementBytes int // size of the element type in bytes, at least 1
	Spec         Spec
}

// AuditOptions says which copies an [Audit] reports as findings.
type AuditOptions struct {
	// LargeBytes is the size in bytes from which a tensor that several devices hold whole or in
	// part is a finding. 0 stands for 1 MiB; a negative size turns findings off.
	LargeBytes int64
	// CopyAxes are the mesh axes over which copies are intended, such as the replicas of
	// data-parallel training. Copies over these axes are no finding.
	CopyAxes []string
}

// AuditEntry says how many bytes of one tensor the devices hold.
type AuditEntry struct {
	Name           string `json:"name"`
	Shape          []int  `json:"shape"`
	Spec           string `json:"spec"`
	TotalBytes     int64  `json:"total_bytes"`      // of one copy of the tensor
	BytesPerDevice int64  `json:"bytes_per_device"` // of the piece on each device
	Replication    int    `json:"replication"`      // devices that hold each element
}

// Finding reports a large tensor that several devices hold copies of.
type Finding struct {
	Name string `json:"name"`
	// SavedBytes is the number of bytes that each device would save if the tensor were split over
	// Axes.
	SavedBytes int64 `json:"saved_bytes"`
	// Axes are the mesh axes over which the tensor is copied.
	Axes []string `json:"axes"`
	// Suggestion is a spec that also splits the tensor over an axis of Axes, or "" if no axis
	// divides a dimension.
	Suggestion string `json:"suggestion,omitempty"`
}

// Report is the result of an [Audit]: entries in the order of the tensors, and findings in the
// order of their savings, the largest first.
type Report struct {
	Mesh           string       `json:"mesh"`
	Devices        int          `json:"devices"`
	TotalBytes     int64        `json:"total_bytes"`      // of one copy of all tensors
	BytesPerDevice int64        `json:"bytes_per_device"` // of all pieces on each device
	Entries        []AuditEntry `json:"entries"`
	Findings       []Finding    `json:"findings"`
}

// Audit reports how many bytes of each tensor every device holds, and which large tensors are
// copied where they could be split. The error joins the problems of all tensors whose spec does not
// fit their shape.
func Audit(mesh Mesh, tensors []Tensor, options AuditOptions) (Report, error) {
	large := options.LargeBytes
	if large == 0 {
		large = 1 << 20
	}
	report := Report{Mesh: mesh.String(), Devices: mesh.Size(), Entries: []AuditEntry{}, Findings: []Finding{}}
	var problems []error
	for _, tensor := range tensors {
		entry, err := auditTensor(mesh, tensor)
		if err != nil {
			problems = append(problems, err)
			continue
		}
		report.Entries = append(report.Entries, entry)
		report.TotalBytes += entry.TotalBytes
		report.BytesPerDevice += entry.BytesPerDevice
		if report.TotalBytes < 0 || report.BytesPerDevice < 0 {
			return Report{}, wrong("audit", "audit fewer tensors", "with tensor %q the tensors have more bytes than an int64 counts", tensor.Name)
		}
		if large > 0 && entry.TotalBytes >= large {
			if finding := findCopies(mesh, tensor, entry, options.CopyAxes); len(finding.Axes) > 0 {
				report.Findings = append(report.Findings, finding)
			}
		}
	}
	slices.SortStableFunc(report.Findings, func(a, b Finding) int { return cmp.Compare(b.SavedBytes, a.SavedBytes) })
	return report, errors.Join(problems...)
}

func auditTensor(mesh Mesh, tensor Tensor) (AuditEntry, error) {
	if err := tensor.Spec.ValidateTensor(mesh, tensor.Name, tensor.Shape); err != nil {
		return AuditEntry{}, err
	}
	total, err := sizeBytes(tensor.Shape, tensor.ElementBytes)
	if err != nil {
		return AuditEntry{}, &errkind.Fault{Op: "sharding: audit", Subject: fmt.Sprintf("tensor %q", tensor.Name), Err: err}
	}
	factor, err := ReplicationFactor(mesh, tensor.Spec)
	if err != nil {
		return AuditEntry{}, err
	}
	return AuditEntry{
		Name: tensor.Name, Shape: slices.Clone(tensor.Shape), Spec: tensor.Spec.String(),
		TotalBytes: total, BytesPerDevice: total / int64(mesh.Size()/factor), Replication: factor,
	}, nil
}

// findCopies returns a finding without axes if the copies are all meant.
func findCopies(mesh Mesh, tensor Tensor, entry AuditEntry, meant []string) Finding {
	finding := Finding{Name: tensor.Name}
	used := append(tensor.Spec.UsedAxes(), meant...)
	copies := int64(1)
	for _, axis := range mesh.axes {
		if axis.Size > 1 && !slices.Contains(used, axis.Name) {
			finding.Axes = append(finding.Axes, axis.Name)
			copies *= int64(axis.Size)
		}
	}
	finding.SavedBytes = entry.BytesPerDevice - entry.BytesPerDevice/copies
	for _, name := range finding.Axes {
		if finding.Suggestion == "" {
			finding.Suggestion = suggest(mesh, tensor, name)
		}
	}
	return finding
}

// suggest returns the spec with an axis added to the largest dimension that then still divides.
func suggest(mesh Mesh, tensor Tensor, axis string) string {
	best, size := "", 0
	for d := range tensor.Shape {
		spec := NewSpec(tensor.Spec.dims...)
		spec.dims[d].Axes = append(spec.dims[d].Axes, axis)
		if tensor.Shape[d] > size && spec.Validate(mesh, tensor.Shape) == nil {
			best, size = spec.String(), tensor.Shape[d]
		}
	}
	return best
}

// WriteTable writes the report as text.
func (r Report) WriteTable(w io.Writer) error {
	var b strings.Builder
	table := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintf(&b, "%s, %d devices\n", r.Mesh, r.Devices)
	fmt.Fprintln(table, "tensor\tshape\tspec\tbytes\tper device\tcopies")
	for _, e := range r.Entries {
		fmt.Fprintf(table, "%s\t%v\t%s\t%d\t%d\t%d\n", e.Name, e.Shape, e.Spec, e.TotalBytes, e.BytesPerDevice, e.Replication)
	}
	fmt.Fprintf(table, "total\t\t\t%d\t%d\t\n", r.TotalBytes, r.BytesPerDevice)
	if err := table.Flush(); err != nil {
		return err
	}
	for _, f := range r.Findings {
		fmt.Fprintf(&b, "finding: %s is copied over %s; splitting it would save %d bytes per device",
			f.Name, strings.Join(f.Axes, ", "), f.SavedBytes)
		if f.Suggestion != "" {
			fmt.Fprintf(&b, "; for example %s", f.Suggestion)
		}
		b.WriteByte('\n')
	}
	text := b.String()
	for line := range strings.Lines(text) {
		if _, err := io.WriteString(w, strings.TrimRight(line, " \n")+"\n"); err != nil {
			return err
		}
	}
	return nil
}

// WriteJSON writes the report as indented JSON.
func (r Report) WriteJSON(w io.Writer) error {
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	return encoder.Encode(r)
}
