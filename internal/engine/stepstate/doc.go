// Package stepstate contains the state of a step while it is traced. It is shared by the replica
// context of package strategy and by the packages that build steps: training, merge calls and
// nests.
package stepstate
