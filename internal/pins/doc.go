// Package pins names the PJRT plugin builds that this module is tested against, and says where the
// installer leaves them, the script install.sh beside this file.
//
// The package holds facts only: nothing here reads the environment, the disk or the network. The
// installer, the plugin search and the doctor command all read the one table pins.tsv, so they
// cannot disagree about a version. The hash of a wheel keys the cache directory, so that several
// checkouts share one copy and a new pin never meets an old file.
package pins
