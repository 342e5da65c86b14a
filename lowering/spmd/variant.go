package spmd

import (
	"fmt"
	"slices"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/lowering"
	"github.com/tpustrategy/tpustrategy/lowering/ir"
)

// AnnotationSite is an annotation of a step that [Module.WithAnnotation] can change. It is the
// annotation of an argument or of a line of the step.
type AnnotationSite struct {
	// Name is the name of the argument, or "" for a line.
	Name string
	// Origin is the line of the annotation, or the line that first reads the argument.
	Origin *ir.Origin
	// Dims is the shape in a replica.
	Dims       []int
	Annotation logical.Annotation
}

type assemblyInput struct {
	trace   *Trace
	program *lowering.Program
	sig     Signature
}

// ReleaseTrace frees the traced step, which only [Module.Annotations] and [Module.WithAnnotation]
// need.
func (m *Module) ReleaseTrace() { m.input = nil }

// Annotations returns the annotations that can be changed, of arguments first and then of lines,
// without duplicates. The element of a variable also represents its optimizer state. Tensors
// assigned to one device, tensors sharded over replicas, constants, and annotations in manual
// regions are omitted. With one logical device there are no annotations. Annotations returns a
// FailedPreconditionError after ReleaseTrace, and for a module of [AssembleGlobal].
func (m *Module) Annotations() (all []AnnotationSite, err error) {
	if m.input == nil {
		return nil, &errkind.Fault{Op: "module:", Subject: m.Name, Reason: "the traced step is not kept",
			Class: errkind.FailedPreconditionError,
			Hint:  "call it before the step runs, or trace the step again"}
	}
	if m.LogicalMesh.Size() == 1 {
		return nil, nil
	}
	shared := map[string]bool{}
	for _, a := range m.Arguments {
		if a.ReplicaShard.IsSharded() {
			shared[m.variableOf(a)] = true
		}
	}
	for _, a := range m.Arguments {
		if a.Name != "" && !a.IsConstant && a.Origin != nil && len(a.LocalDims) > 0 &&
			a.Annotation.Kind() != logical.KindAssign && m.variableOf(a) == a.Name && !shared[a.Name] {
			all = append(all, AnnotationSite{a.Name, a.Origin, a.LocalDims, a.Annotation})
		}
	}
	m.input.mapAnnotations(func(s *ir.Statement, a annotationPlaceholder) *ir.Statement {
		site := AnnotationSite{"", s.Results[0].Origin, s.Results[0].Type.Dims, a.annotation}
		if !slices.ContainsFunc(all, site.isSameAs) {
			all = append(all, site)
		}
		return s
	})
	return all, nil
}

// isSameAs reports whether two sites have equal annotations and are the same argument or line.
func (s AnnotationSite) isSameAs(o AnnotationSite) bool {
	return s.Name == o.Name && s.Annotation.Equal(o.Annotation) && (s.Name != "" || s.Origin.File == o.Origin.File &&
		s.Origin.Line == o.Origin.Line)
}

// variableOf returns the name of the variable to which an argument belongs. For optimizer state
// this is the variable that the optimizer updates. For any other argument it is the argument's
// name.
func (m *Module) variableOf(a ShardedTensor) string {
	variable := logical.OwnerOfState(a.Name, func(path string) bool {
		return slices.ContainsFunc(m.Arguments, func(v ShardedTensor) bool {
			return v.Name == path && slices.Equal(v.ReplicaShard.UnshardedDims(v.LocalDims),
				a.ReplicaShard.UnshardedDims(a.LocalDims))
		})
	})
	if variable == "" {
		return a.Name
	}
	return variable
}

// mapAnnotations calls f for each annotation that has a source line, including annotations of
// gradients. It omits assignments to a device and annotations in manual regions. It returns the
// program's functions with each annotation replaced by the result of f.
func (s *assemblyInput) mapAnnotations(f func(s *ir.Statement, a annotationPlaceholder) *ir.Statement) []*ir.Function {
	functions := slices.Clone(s.program.Module.Functions)
	manual := map[*ir.Statement]bool{}
	for _, p := range s.trace.passes {
		if p.isManual() {
			for _, inside := range functions[0].Body[p.begin:p.end] {
				manual[inside] = true
			}
		}
	}
	for n, function := range functions {
		written := *function
		written.Body = ir.Map(function.Body, func(s *ir.Statement) *ir.Statement {
			if a, ok := s.Placeholder.(annotationPlaceholder); ok && s.Results[0].Origin != nil &&
				a.annotation.Kind() != logical.KindAssign && !manual[s] {
				return f(s, a)
			}
			return s
		})
		functions[n] = &written
	}
	return functions
}

// WithAnnotation returns the module of the step in which the given sites, either all arguments or
// all lines, have another annotation. An annotation of kind [logical.KindNone] removes the
// annotation of a line. Optimizer state changes with its variable if both have the same layout.
func (m *Module) WithAnnotation(sites []AnnotationSite, annotation logical.Annotation) (*Module, error) {
	if _, err := m.Annotations(); err != nil {
		return nil, err
	}
	changed := func(s AnnotationSite) bool { return slices.ContainsFunc(sites, s.isSameAs) }
	sig := m.input.sig
	sig.Arguments, sig.Results = slices.Clone(sig.Arguments), slices.Clone(sig.Results)
	for i, a := range m.Arguments {
		if a.Name == "" || !changed(AnnotationSite{Name: m.variableOf(a), Annotation: a.Annotation}) {
			continue
		}
		sig.Arguments[i].Annotation = annotation
		if a.Donated {
			sig.Results[a.Result].Annotation = annotation
		}
	}
	var invalid error
	trace, program, module := *m.input.trace, *m.input.program, *m.input.program.Module
	module.Functions = m.input.mapAnnotations(func(s *ir.Statement, a annotationPlaceholder) *ir.Statement {
		origin := s.Results[0].Origin
		if !changed(AnnotationSite{Origin: origin, Annotation: a.annotation}) {
			return s
		}
		if err := annotation.ValidateOn(trace.mesh, fmt.Sprintf("%s:%d", origin.File, origin.Line),
			s.Results[0].Type.Dims); err != nil {
			invalid = err
		}
		rewritten := *s
		a.annotation = annotation
		rewritten.Placeholder = a
		return &rewritten
	})
	if invalid != nil {
		return nil, invalid
	}
	trace.annotations, program.Module = append(slices.Clip(trace.annotations), annotation), &module
	return trace.assemble(&program, sig)
}
