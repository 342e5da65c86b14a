package strategy

// machine is the R x P machine below the strategy's contract, for the packages of this
// module that stand on it: strategy/eager, strategy/train, strategy/stepfile and
// strategy/feed. Its methods are theirs alone, so that what they need is not part of the
// contract that everybody reads.
type machine TPUStrategy

// Machine returns what this module's own packages use of the strategy beside its
// contract. It is not part of the contract, and changes without notice.
func (s *TPUStrategy) Machine() *machine { return (*machine)(s) }

func (m *machine) strategy() *TPUStrategy { return (*TPUStrategy)(m) }
