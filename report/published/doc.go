// Package published has measurements on TPUs that others have published: of single operations, with
// their programs ([Operations]), and of training steps ([Steps]). Predictions are held against them; the
// command tpustrategy validate does so. The sources are the public recipes of AI-Hypercomputer, in the
// repositories tpu-recipes and maxtext.
package published
