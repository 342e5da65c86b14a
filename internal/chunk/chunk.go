package chunk

// Range returns the rows start to end-1 of chunk i of n of a batch: each chunk has ceil(rows/n) rows,
// and the last chunks may be shorter or empty.
func Range(rows, n, i int) (start, end int) {
	size := (rows + n - 1) / n
	return min(i*size, rows), min((i+1)*size, rows)
}
