package main

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"

	"github.com/gomlx/gomlx/examples/imdb"
)

// imdbTexts writes film reviews, one per file. A few words of a review determine its label.
func imdbTexts(dir string, r *rand.Rand) error {
	words := map[string][]string{
		"pos": {"great", "wonderful", "moving", "superb"}, "neg": {"dull", "awful", "boring", "poor"},
		"unsup": {"plain", "usual"},
	}
	for _, set := range []struct {
		part string
		n    int
	}{{"train", 320}, {"test", 80}} {
		part, n := set.part, set.n
		for _, kind := range []string{"neg", "pos", "unsup"} {
			if kind == "unsup" && part == "test" {
				continue
			}
			sub := filepath.Join(dir, imdb.LocalDir, part, kind)
			if err := os.MkdirAll(sub, 0o755); err != nil {
				return err
			}
			for i := range n {
				var text []string
				for range 20 + r.IntN(60) {
					if r.IntN(8) == 0 {
						text = append(text, words[kind][r.IntN(len(words[kind]))])
					} else {
						text = append(text, fmt.Sprintf("word%c%c", 'a'+r.IntN(20), 'a'+r.IntN(20)))
					}
				}
				rating := map[string]int{"pos": 9, "neg": 2, "unsup": 0}[kind]
				name := filepath.Join(sub, fmt.Sprintf("%d_%d.txt", i, rating))
				if err := os.WriteFile(name, []byte(strings.Join(text, " ")+".<br />"), 0o644); err != nil {
					return err
				}
			}
		}
	}
	return nil
}
