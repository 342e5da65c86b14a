// Package stepstate contains the state of a step function while the function is traced. Package
// strategy and the packages that build steps, such as strategy/train, share this state.
package stepstate
