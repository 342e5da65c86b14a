package strategy

import "github.com/tpustrategy/tpustrategy/report/phase"

// Stage is a stage in the making of a step's program.
type Stage = phase.Stage

// The stages of a step's program, in their order.
const (
	// StageTracing calls the step function and builds its graph, gradients included.
	StageTracing = phase.Tracing
	// StageLowering writes the graph as StableHLO text.
	StageLowering = phase.Lowering
	// StageCompiling compiles the text, or loads its program from a cache.
	StageCompiling = phase.Compiling
	// StageDone says that the program is there, or that there will be none.
	StageDone = phase.Done
)

// Phase says which stage the making of a step's program has come to, for [Options.Phases].
type Phase = phase.Phase

// phases tells of the stages of one step's program.
type phases struct {
	tell func(Phase)
	now  Phase
}

// phases returns what tells of the making of a step's program. It may be nil, and its methods be
// called all the same.
func (f *Function) phases() *phases {
	s := f.strategy
	if s.opts.Phases == nil || f.opts.own {
		return nil
	}
	return &phases{s.opts.Phases, Phase{Name: f.opts.Name, Target: s.reportTarget().Name, Replicas: s.replicas, LogicalDevices: s.logicalDevices}}
}

func (p *phases) begin(stage Stage) {
	if p != nil {
		p.now.Stage = stage
		p.tell(p.now)
	}
}

func (p *phases) compile(textBytes int) {
	if p != nil {
		p.now.TextBytes = textBytes
		p.begin(StageCompiling)
	}
}

func (p *phases) done(err error) {
	if p != nil {
		p.now.Err = err
		p.begin(StageDone)
	}
}
