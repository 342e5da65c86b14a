// Package trainertest tests programs that train with package trainer.
package trainertest
