package main

import (
	"fmt"
	"html"
	"math"
	"slices"
	"strings"
)

// The measures of the chart, in pixels: one row a case, fuel on the left and time on the right, both axes logarithmic.
const (
	chartWidth  = 360
	chartHeight = 170
	chartLeft   = 70  // for what the axis says
	chartTop    = 40  // for the title
	chartGap    = 50  // for the axis below
	chartLegend = 110 // right of both
)

var chartColours = [...]string{"#1f77b4", "#ff7f0e", "#2ca02c", "#d62728", "#9467bd", "#8c564b", "#e377c2", "#7f7f7f", "#bcbd22", "#17becf", "#393b79", "#637939"}

// chartPanel is one of the two curves of a case.
type chartPanel struct {
	title string
	limit float64 // drawn as a line across
	of    func(*benchPoint) (float64, bool)
	text  func(float64) string
}

// benchSVG draws fuel and time at the 99th percentile against the number of shards, one line a number of nodes.
func benchSVG(name string, r *benchResult) string {
	var titles []string
	var nodes, shards []int
	for _, p := range r.Points {
		if t := p.title(); !slices.Contains(titles, t) {
			titles = append(titles, t)
		}
		nodes, shards = append(nodes, p.Nodes), append(shards, p.Shards)
	}
	slices.Sort(nodes)
	nodes = slices.Compact(nodes)
	panels := []chartPanel{
		{"fuel", float64(r.FuelLimit), func(p *benchPoint) (float64, bool) {
			if p.Fuel == nil || *p.Fuel < 1 {
				return 0, false
			}
			return float64(*p.Fuel), true
		}, func(v float64) string { return thousands(int64(v)) }},
		{"time, p99", max(1, float64(r.BudgetUs)), func(p *benchPoint) (float64, bool) { return p.P99Us, p.P99Us > 0 }, benchTime},
	}
	row := chartTop + chartHeight + chartGap
	width, height := 2*(chartLeft+chartWidth)+chartLegend, 30+row*len(titles)
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%d" height="%d" font-family="sans-serif" font-size="11">`+"\n",
		width, height, width, height)
	fmt.Fprintf(&b, `<rect width="100%%" height="100%%" fill="#fff"/>`+"\n"+`<text x="10" y="20" font-size="14">%s, %s</text>`+"\n", html.EscapeString(name), r.Digest)
	x := newLogScale(float64(slices.Min(shards)), float64(slices.Max(shards)), chartWidth)
	for i, title := range titles {
		for j, panel := range panels {
			fmt.Fprintf(&b, `<g transform="translate(%d %d)">`+"\n", chartLeft+j*(chartLeft+chartWidth), 30+i*row+chartTop)
			panel.draw(&b, title, x, nodes, r.Points)
			b.WriteString("</g>\n")
		}
		for k, n := range nodes {
			fmt.Fprintf(&b, `<text x="%d" y="%d" fill="%s">%s</text>`+"\n",
				2*(chartLeft+chartWidth)+12, 30+i*row+chartTop+10+14*k, chartColours[k%len(chartColours)], counted(n, "node"))
		}
	}
	b.WriteString("</svg>\n")
	return b.String()
}

// draw writes the axes and lines of one panel.
func (c *chartPanel) draw(b *strings.Builder, title string, x logScale, nodes []int, points []benchPoint) {
	low, high := c.limit, c.limit
	for i := range points { // of all cases, so that they can be compared
		if v, ok := c.of(&points[i]); ok {
			low, high = min(low, v), max(high, v)
		}
	}
	y := newLogScale(low, high, chartHeight)
	fmt.Fprintf(b, `<text y="-8">%s: %s</text>`+"\n", html.EscapeString(title), c.title)
	fmt.Fprintf(b, `<rect width="%d" height="%d" fill="none" stroke="#999"/>`+"\n", chartWidth, chartHeight)
	for d := x.low; d <= x.high; d++ {
		at := x.at(math.Pow10(d))
		fmt.Fprintf(b, `<path d="M%.1f 0V%d" stroke="#eee"/><text x="%.1f" y="%d" text-anchor="middle">%s</text>`+"\n",
			at, chartHeight, at, chartHeight+14, thousands(int64(math.Pow10(d))))
	}
	fmt.Fprintf(b, `<text x="%d" y="%d" text-anchor="middle">shards</text>`+"\n", chartWidth/2, chartHeight+28)
	for d := y.low; d <= y.high; d++ {
		at := chartHeight - y.at(math.Pow10(d))
		fmt.Fprintf(b, `<path d="M0 %.1fH%d" stroke="#eee"/><text x="-5" y="%.1f" text-anchor="end">%s</text>`+"\n", at, chartWidth, at+4, c.text(math.Pow10(d)))
	}
	at := chartHeight - y.at(c.limit)
	fmt.Fprintf(b, `<path d="M0 %.1fH%d" stroke="#000" stroke-dasharray="5 3"/><text x="5" y="%.1f">limit %s</text>`+"\n", at, chartWidth, at+12, c.text(c.limit))
	for k, n := range nodes {
		colour := chartColours[k%len(chartColours)]
		var path, dots strings.Builder
		command := "M"
		for i := range points {
			p := &points[i]
			if p.Nodes != n || p.title() != title {
				continue
			}
			v, ok := c.of(p)
			if !ok { // a gap
				command = "M"
				continue
			}
			px, py := x.at(float64(p.Shards)), chartHeight-y.at(v)
			fmt.Fprintf(&path, "%s%.1f %.1f", command, px, py)
			fmt.Fprintf(&dots, `<circle cx="%.1f" cy="%.1f" r="2.5"><title>%s shards, %s: %s, %s</title></circle>`,
				px, py, thousands(int64(p.Shards)), counted(n, "node"), c.text(v), p.Verdict)
			command = "L"
		}
		fmt.Fprintf(b, `<path d="%s" fill="none" stroke="%s" stroke-width="1.5"/><g fill="%s">%s</g>`+"\n", path.String(), colour, colour, dots.String())
	}
}

// logScale maps values to pixels, over whole powers of ten.
type logScale struct {
	low, high int // exponents; low < high
	pixels    float64
}

func newLogScale(low, high, pixels float64) logScale {
	s := logScale{int(math.Floor(math.Log10(low))), int(math.Ceil(math.Log10(high))), pixels}
	s.high = max(s.high, s.low+1)
	return s
}

func (s logScale) at(v float64) float64 {
	return (math.Log10(v) - float64(s.low)) / float64(s.high-s.low) * s.pixels
}
