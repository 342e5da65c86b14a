package files

import "regexp"

// urlPattern matches a URL. mergedURLPattern matches a URL with a known scheme whose slashes were
// merged by filepath.Clean or filepath.Join. A scheme has at least two letters, because a single
// letter is a drive.
var (
	urlPattern       = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9+.-]+://`)
	mergedURLPattern = regexp.MustCompile(
		`^(?i:gs|gcs|s3|s3a|s3n|r2|http|https|file|ftp|ftps|sftp|hdfs|abfss?|adl|az|wasbs?|oci|oss|cos|hf|mem|ram|bigtable|bq|dbfs|cns|webhdfs|ssh|smb):/`)
)

// CheckLocal returns an error if path is a URL. Without this check, writing to "gs://bucket" would
// create a local directory "gs:". A path such as "./gs:/..." is not a URL.
func CheckLocal(path string) error {
	if urlPattern.MatchString(path) || mergedURLPattern.MatchString(path) {
		return &Error{Path: path, Reason: IsURL, Hint: "copy the files to this machine, or mount the bucket " +
			"(for example with gcsfuse) and use its path"}
	}
	return nil
}
