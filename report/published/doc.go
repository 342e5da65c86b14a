// Package published contains published measurements on TPUs: of single operations with their
// programs ([Operations]), and of training steps ([Steps]). The command tpustrategy validate
// compares predictions with them. The sources are the public recipes of AI-Hypercomputer, in the
// repositories tpu-recipes and maxtext.
package published
