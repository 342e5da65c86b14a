package strategy

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/lowering/spmd"
	"github.com/tpustrategy/tpustrategy/strategy/internal/fault"
)

// Every process traces, lowers and compiles its own program, and all must come to the same one:
// processes that launch different programs hang a slice. So before a program is compiled, the
// processes compare fingerprints of it.

// MismatchError reports that the processes of a job differ in something that must be the same on
// all of them, such as the program of a step.
type MismatchError struct {
	// What names what was compared, such as `program "train_step"`.
	What string
	// Texts are the texts that were compared, by process.
	Texts []string
	// Differing lists the processes whose text is not the most frequent one, ascending. Where
	// several texts are equally frequent, that of process 0 counts.
	Differing []int
}

// Error says which processes differ, and the text of each.
func (e *MismatchError) Error() string {
	var same []int
	for i := range e.Texts {
		if !slices.Contains(e.Differing, i) {
			same = append(same, i)
		}
	}
	var has strings.Builder
	for _, i := range e.Differing {
		fmt.Fprintf(&has, "process %d has %s; ", i, e.Texts[i])
	}
	fmt.Fprintf(&has, "%s has %s", many("process", same), e.Texts[same[0]])
	return errkind.Text("strategy: the processes differ in "+e.What, has.String(), nil, "start the same program with the same options and data sizes on each")
}

// Kind returns ValueError.
func (e *MismatchError) Kind() Kind { return ValueError }

func many(noun string, list []int) string {
	if len(list) == 1 {
		return fmt.Sprintf("%s %d", noun, list[0])
	}
	return fmt.Sprintf("each of %ses %s", noun, strings.Trim(strings.Join(strings.Fields(fmt.Sprint(list)), ", "), "[]"))
}

// Agree compares a text over the processes, for what depends on files, flags or the environment and
// must be the same on all processes, such as the number of examples. It returns a [*MismatchError]
// on every process if the text of any process differs. All processes call it. The comparison takes
// the whole text; the error shows 300 bytes of it.
func (s *TPUStrategy) Agree(ctx context.Context, what, text string) error {
	if err := RefuseTracing(ctx, "compare "+what, fault.InsteadOfMeeting); err != nil {
		return err
	}
	return s.agree(ctx, what, text, []byte(text))
}

func (s *TPUStrategy) agree(ctx context.Context, what, text string, content []byte) error {
	if s.devices == nil {
		return nil
	}
	if err := s.check(); err != nil {
		return err
	}
	return inOrder(s.devices.Agree(ctx, what, text, content))
}

// agreeOnProgram compares a program before it is compiled. A process that cannot make one, failed,
// says so to the others instead of leaving them waiting; its own error comes first.
func (s *TPUStrategy) agreeOnProgram(ctx context.Context, f *Function, values []Value, m *spmd.Module, failed error) error {
	if !s.machine.Several() {
		return failed
	}
	what := fmt.Sprintf("program %q", f.opts.Name)
	if failed != nil {
		if err := s.agree(ctx, what, "no program, because of "+failed.Error(), []byte("failed")); err != nil {
			if _, ok := err.(*MismatchError); !ok {
				return fmt.Errorf("%w (and telling the other processes failed: %v)", failed, err)
			}
		}
		return failed
	}
	var text strings.Builder
	for i, v := range values {
		if i > 0 {
			text.WriteString(", ")
		}
		text.WriteString(v.base().String())
	}
	content := fmt.Appendf(nil, "%v\n", s.assignment.DeviceIDs())
	return s.agree(ctx, what, fmt.Sprintf("arguments [%s]", text.String()), append(content, m.Text...))
}
