package pluginapi

import "math"

// Coord is a Serf network coordinate: a point whose distance from another estimates the round-trip time between the two
// nodes. All values are in seconds.
type Coord struct {
	Vec        []float64
	Error      float64
	Adjustment float64
	Height     float64
}

// IsZero tells whether the coordinate was not told.
func (c Coord) IsZero() bool {
	return len(c.Vec) == 0 && c.Error == 0 && c.Adjustment == 0 && c.Height == 0
}

// RTT estimates the round-trip time to another coordinate, in seconds; ok is false where the two cannot be compared: they
// have different dimensions, one is zero, or the estimate is no finite number.
// Every operation is rounded on its own, so that the result has the same bits natively and in wasm.
func (c Coord) RTT(o Coord) (seconds float64, ok bool) {
	if len(c.Vec) == 0 || len(c.Vec) != len(o.Vec) {
		return 0, false
	}
	sum := 0.0
	for i := range c.Vec {
		d := float64(c.Vec[i] - o.Vec[i])
		sum = float64(sum + float64(d*d))
	}
	raw := float64(math.Sqrt(sum) + float64(c.Height+o.Height))
	adjusted := float64(raw + float64(c.Adjustment+o.Adjustment))
	switch {
	case math.IsNaN(adjusted) || math.IsInf(adjusted, 0):
		return 0, false
	case adjusted > 0:
		return adjusted, true
	}
	return raw, true
}
