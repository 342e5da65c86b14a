// Package pins lists the PJRT plugin builds that this module is tested with, and the paths at which
// the installer (install.sh) stores them.
//
// The package only contains data. It does not access the environment, the disk or the network. The
// installer, the plugin search and the doctor command all read the table pins.tsv, so they use the
// same versions. Each wheel has a cache directory that is named after its hash. Several clones of
// the module therefore share one copy, and a new version gets a new directory.
package pins
