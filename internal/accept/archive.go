package accept

import (
	"compress/gzip"
	"encoding/json"
	"errors"
	"io"
)

// WriteArchive writes the file to send back: JSON lines, compressed by gzip. The first line is the
// report, each further one an outcome.
func WriteArchive(w io.Writer, r *Report) error {
	packed := gzip.NewWriter(w)
	lines := json.NewEncoder(packed)
	err := lines.Encode(r)
	for i := 0; err == nil && i < len(r.Outcomes); i++ {
		err = lines.Encode(r.Outcomes[i])
	}
	return errors.Join(err, packed.Close())
}
