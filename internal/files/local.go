package files

import "regexp"

// scheme begins a URL; known is one whose slashes filepath.Clean or filepath.Join has made one. A
// name of a single letter is a drive, not a scheme.
var (
	scheme = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9+.-]+://`)
	known  = regexp.MustCompile(`^(?i:gs|gcs|s3|s3a|s3n|r2|http|https|file|ftp|ftps|sftp|hdfs|abfss?|adl|az|wasbs?|oci|oss|cos|hf|mem|ram|bigtable|bq|dbfs|cns|webhdfs|ssh|smb):/`)
)

// Local refuses a path that is a URL: nothing here reads or writes other places than the local file
// system, where such a path would quietly become a folder "gs:". A folder that has such a name can
// be given as "./gs:/...".
func Local(path string) error {
	if scheme.MatchString(path) || known.MatchString(path) {
		return &Error{Path: path, Reason: URL, Hint: "only paths of this machine's file system work: copy the files, or mount the bucket (for example with gcsfuse) and give its path"}
	}
	return nil
}
