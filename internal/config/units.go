package config

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// Bytes is a number of bytes, written "64MiB".
type Bytes int64

// Sizes to multiply with.
const (
	KiB Bytes = 1 << 10
	MiB Bytes = 1 << 20
	GiB Bytes = 1 << 30
)

// Rate is a number of bytes a second, written "100MiB/s".
type Rate int64

// byteUnits is ordered: the largest unit that divides a value is the one it is shown in, binary ones alone.
var byteUnits = []struct {
	name   string
	size   int64
	binary bool
}{
	{"TiB", 1 << 40, true}, {"GiB", 1 << 30, true}, {"MiB", 1 << 20, true}, {"KiB", 1 << 10, true},
	{"TB", 1e12, false}, {"GB", 1e9, false}, {"MB", 1e6, false}, {"kB", 1e3, false}, {"KB", 1e3, false}, {"B", 1, true},
}

// ParseBytes reads a size: a whole number and a unit (B, kB, MB, GB, TB by thousands; KiB, MiB, GiB, TiB by 1024).
func ParseBytes(s string) (Bytes, error) {
	for _, u := range byteUnits {
		digits, ok := strings.CutSuffix(s, u.name)
		if !ok {
			continue
		}
		n, err := strconv.ParseUint(strings.TrimRight(digits, " "), 10, 63)
		if err != nil || n > math.MaxInt64/uint64(u.size) {
			break
		}
		return Bytes(int64(n) * u.size), nil
	}
	return 0, fmt.Errorf(`not a size (want a whole number and a unit, such as "64MiB")`)
}

func (b Bytes) String() string {
	for _, u := range byteUnits {
		if u.binary && int64(b)%u.size == 0 && (b != 0 || u.size == 1) {
			return strconv.FormatInt(int64(b)/u.size, 10) + u.name
		}
	}
	return strconv.FormatInt(int64(b), 10) + "B"
}

// ParseRate reads a size a second.
func ParseRate(s string) (Rate, error) {
	size, ok := strings.CutSuffix(s, "/s")
	if ok {
		b, err := ParseBytes(size)
		if err == nil {
			return Rate(b), nil
		}
	}
	return 0, fmt.Errorf(`not a rate (want a size a second, such as "100MiB/s")`)
}

func (r Rate) String() string { return Bytes(r).String() + "/s" }

// parseDuration reads a duration that is not negative.
func parseDuration(s string) (time.Duration, error) {
	d, err := time.ParseDuration(s)
	if err != nil || d < 0 {
		return 0, fmt.Errorf(`not a duration (want a number and a unit: "2s", "100ms", "1m30s")`)
	}
	return d, nil
}

// formatDuration writes a duration without the zero parts that time.Duration.String adds.
func formatDuration(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}
