// Package staging provides host memory for transfers to devices and limits its size. The memory is
// allocated from the system and returned to it, so that the size of the process decreases after the
// transfers.
package staging
