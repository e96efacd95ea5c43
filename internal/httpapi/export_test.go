package httpapi

import (
	"slices"
)

// Kinds lists every kind, sorted.
func Kinds() []Kind {
	var out []Kind
	for k := range kinds {
		out = append(out, k)
	}
	slices.Sort(out)
	return out
}

// Status is the kind's HTTP status.
func (k Kind) Status() int { return kinds[k].status }

// Routes lists "METHOD /pattern".
func Routes() []string {
	var out []string
	for i := range routes {
		out = append(out, routes[i].method+" "+routes[i].pattern)
	}
	return out
}
