package tomldoc

import (
	"fmt"
	"strings"
)

// DidYouMean returns " (did you mean …?)" for the candidate nearest to name, or nothing if none is near.
func DidYouMean(name string, candidates []string) string {
	if near := Nearest(name, candidates); near != "" {
		return fmt.Sprintf(" (did you mean %q?)", near)
	}
	return ""
}

// Nearest returns the candidate with the fewest edits from name, if that is at most a third of its letters.
func Nearest(name string, candidates []string) string {
	const longest = 64 // nobody mistypes a longer name, and distance is quadratic
	if len(name) > longest {
		return ""
	}
	best, bestEdits := "", max(1, len(name)/3)+1
	for _, c := range candidates {
		if d := edits(strings.ToLower(name), strings.ToLower(c)); d < bestEdits {
			best, bestEdits = c, d
		}
	}
	return best
}

// edits is the optimal-string-alignment distance: insert, delete, replace, swap neighbours.
func edits(a, b string) int {
	before, row := make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := 1; i <= len(a); i++ {
		next := make([]int, len(b)+1)
		next[0] = i
		for j := 1; j <= len(b); j++ {
			replace := row[j-1]
			if a[i-1] != b[j-1] {
				replace++
			}
			next[j] = min(row[j]+1, next[j-1]+1, replace)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				next[j] = min(next[j], before[j-2]+1)
			}
		}
		before, row = row, next
	}
	return row[len(b)]
}
