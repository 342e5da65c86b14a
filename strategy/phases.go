package strategy

import "fmt"

// Stage is a stage in the making of a step's program.
type Stage int

const (
	// StageTracing calls the step function and builds its graph, gradients included.
	StageTracing Stage = iota
	// StageLowering writes the graph as StableHLO text.
	StageLowering
	// StageCompiling compiles the text, or loads its program from a cache.
	StageCompiling
	// StageDone says that the program is there, or that there will be none.
	StageDone
)

// String returns the stage as a word, such as "tracing".
func (s Stage) String() string {
	if s < StageTracing || s > StageDone {
		return fmt.Sprintf("Stage(%d)", int(s))
	}
	return [...]string{"tracing", "lowering", "compiling", "done"}[s]
}

// Phase says which stage the making of a step's program has come to, for [Options.Phases].
type Phase struct {
	// Name is the name of the step function.
	Name string
	// Stage is the stage that begins.
	Stage Stage
	// Target is the name of what is compiled for: a slice's, such as "v5e:4x4", or the platform's.
	Target string
	// Replicas and LogicalDevices are the numbers that the step is compiled for.
	Replicas, LogicalDevices int
	// TextBytes is the size of the step's StableHLO text; 0 before StageCompiling.
	TextBytes int
	// Err says at StageDone why there is no program; nil if there is one.
	Err error
}

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
