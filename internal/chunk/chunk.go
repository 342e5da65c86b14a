package chunk

// Range splits the rows of a batch into n chunks and returns the rows of chunk i: start is the
// first row, and end is the row after the last one. Each chunk has ceil(rows/n) rows, except that
// the last chunks may be shorter or empty.
func Range(rows, n, i int) (start, end int) {
	size := (rows + n - 1) / n
	return min(i*size, rows), min((i+1)*size, rows)
}
