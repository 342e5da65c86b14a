package chunk

// Range returns the rows of chunk i if the rows of a batch are split into n chunks: start is the first
// row and end the row after the last. Each chunk has ceil(rows/n) rows, except that the last chunks may
// be shorter or empty.
func Range(rows, n, i int) (start, end int) {
	size := (rows + n - 1) / n
	return min(i*size, rows), min((i+1)*size, rows)
}
