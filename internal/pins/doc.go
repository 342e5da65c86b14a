// Package pins contains the PJRT plugin builds that this module is tested with, and the paths at
// which the installer (install.sh) stores them.
//
// The package contains only data: it does not read the environment, the disk or the network. The
// installer, the search for plugins and the doctor command all use the table pins.tsv, so that they
// use the same versions. The hash of a wheel is the name of its cache directory. Several clones
// share one copy, and a new pin uses a new directory.
package pins
