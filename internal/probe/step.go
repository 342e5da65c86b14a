package probe

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"runtime/debug"
	"sync"

	"github.com/tpustrategy/tpustrategy/aot/plan"
	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/report"
)

// Step implements [plan.Step] with a Compiler.
type Step struct {
	Compiler *Compiler
	// Build traces and lowers the step for a plan. A panic is returned as an error.
	Build func(ctx context.Context, p plan.Plan) (BuiltStep, error)

	mu             sync.Mutex
	programsByPlan map[string]Program
}

// BuiltStep is the lowered program of a step for a plan.
type BuiltStep struct {
	Program
	// Report describes the program before compilation.
	Report    *report.Report
	Variables []plan.Variable
	Rows      int
}

// Sketch traces and lowers the step for a plan, and estimates its time and memory without a compiler.
func (s *Step) Sketch(ctx context.Context, p plan.Plan) (sketch plan.Sketch, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = &errkind.Fault{Op: "building the step for " + p.String(), Reason: fmt.Sprintf("panic: %v\n%s", r,
				debug.Stack()), Class: errkind.InternalError}
		}
	}()
	key, err := planKey(p)
	if err != nil {
		return sketch, err
	}
	built, err := s.Build(ctx, p)
	if err != nil {
		return sketch, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.programsByPlan == nil {
		s.programsByPlan = map[string]Program{}
	}
	s.programsByPlan[key] = built.Program
	return built.estimateSketch(), nil
}

// Probe calls [Compiler.Probe] with the program that an earlier call of [Step.Sketch] lowered for
// the plan.
func (s *Step) Probe(ctx context.Context, p plan.Plan) (plan.Figures, error) {
	return s.measure(ctx, p, s.Compiler.Probe)
}

// Compile calls [Compiler.Compile] with the program that an earlier call of [Step.Sketch] lowered
// for the plan.
func (s *Step) Compile(ctx context.Context, p plan.Plan) (plan.Figures, error) {
	return s.measure(ctx, p, s.Compiler.Compile)
}

func (s *Step) measure(ctx context.Context, p plan.Plan, run func(context.Context, Program) (plan.Figures,
	error)) (plan.Figures, error) {
	key, err := planKey(p)
	s.mu.Lock()
	program, known := s.programsByPlan[key]
	s.mu.Unlock()
	if err == nil && !known {
		err = &errkind.Fault{Op: "plan", Subject: p.String(), Reason: "it was not sketched",
			Class: errkind.FailedPreconditionError}
	}
	if err != nil {
		return plan.Figures{}, err
	}
	return run(ctx, program)
}

// planKey returns the plan as JSON. It returns an error for rules without a JSON form, because the
// best plan of a search is written to a file.
func planKey(p plan.Plan) (string, error) {
	key, err := json.Marshal(p)
	return string(key), err
}

// estimateSketch estimates memory and time from the lowered program, without a compiler.
func (m BuiltStep) estimateSketch() plan.Sketch {
	facts := m.Slice.Info()
	sum := sha256.Sum256(m.Code)
	s := plan.Sketch{Program: hex.EncodeToString(sum[:]), Limit: facts.HBMBytes, Variables: m.Variables, Rows: m.Rows}
	updated := int64(0)
	for _, t := range m.Report.Tensors {
		if t.Role != "result" {
			s.Bytes += t.BytesPerCore
		}
		if t.Donated {
			updated += t.BytesPerCore
		}
	}
	if facts.PeakFLOPS > 0 && facts.HBMBandwidth > 0 {
		products := m.Report.Cost.ModelFLOPs / (facts.PeakFLOPS * float64(m.Replicas*m.Logical))
		memory := float64(s.Bytes+updated) / facts.HBMBandwidth // variables are read, and the updated ones written
		s.Seconds, s.Expected = max(products, memory), products+memory
	}
	return s
}
