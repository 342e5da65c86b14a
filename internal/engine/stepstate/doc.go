// Package stepstate contains the state of a step function while the function is traced. The state is
// shared by package strategy and the packages that build steps: strategy/train, strategy/eager and
// strategy/nest.
package stepstate
