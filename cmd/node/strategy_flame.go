package main

import (
	"cmp"
	"fmt"
	"html"
	"slices"
	"strings"

	"github.com/droverhq/drover/host"
)

// The measures of a flame graph, in pixels: exports of the module on top, what they call below.
const (
	flameWidth  = 1200
	flameRow    = 18
	flameTop    = 30
	flameLetter = 7   // of the font, about
	flameLeast  = 0.2 // of a box that is drawn
)

// flameBox is a function under one stack, with all that it called.
type flameBox struct {
	function host.Function
	fuel     int64
	callees  map[uint32]*flameBox
}

// flameSVG draws where the fuel went: the width of a box is the fuel of a function with all that it called.
func flameSVG(title string, samples []host.Sample) string {
	root := &flameBox{}
	depth := 0
	for _, s := range samples {
		depth = max(depth, len(s.Stack))
		at := root
		at.fuel += s.Fuel
		for _, f := range slices.Backward(s.Stack) {
			next := at.callees[f.Index]
			if next == nil {
				next = &flameBox{function: f}
				if at.callees == nil {
					at.callees = map[uint32]*flameBox{}
				}
				at.callees[f.Index] = next
			}
			next.fuel += s.Fuel
			at = next
		}
	}
	height := flameTop + flameRow*depth + 10
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%d" height="%d" font-family="monospace" font-size="11">`+"\n",
		flameWidth, height, flameWidth, height)
	fmt.Fprintf(&b, `<rect width="100%%" height="100%%" fill="#fff"/>`+"\n"+`<text x="5" y="20" font-size="14">%s</text>`+"\n", svgText(title))
	root.drawCallees(&b, root.fuel, 0, flameTop)
	b.WriteString("</svg>\n")
	return b.String()
}

func (f *flameBox) drawCallees(b *strings.Builder, all int64, x float64, y int) {
	below := make([]*flameBox, 0, len(f.callees))
	for _, c := range f.callees {
		below = append(below, c)
	}
	slices.SortFunc(below, func(a, b *flameBox) int {
		return cmp.Or(cmp.Compare(b.fuel, a.fuel), cmp.Compare(a.function.Index, b.function.Index))
	})
	for _, c := range below {
		width := flameWidth * float64(c.fuel) / float64(all)
		if width < flameLeast {
			return // and so are the rest
		}
		fmt.Fprintf(b, `<g><title>%s: %s units, %s</title><rect x="%.2f" y="%d" width="%.2f" height="%d" fill="hsl(%d 80%% 70%%)" stroke="#fff" stroke-width="0.5"/>`,
			svgText(c.function.Name), thousands(c.fuel), percent(float64(c.fuel)/float64(all)), x, y, width, flameRow-1, 10+c.function.Index*37%50)
		if letters := int(width-6) / flameLetter; letters >= 3 {
			name := []rune(c.function.Name)
			if len(name) > letters {
				name = append(name[:letters-1], '…')
			}
			fmt.Fprintf(b, `<text x="%.2f" y="%d">%s</text>`, x+3, y+13, svgText(string(name)))
		}
		b.WriteString("</g>\n")
		c.drawCallees(b, all, x, y+flameRow)
		x += width
	}
}

// svgText returns a text as XML can hold it.
func svgText(text string) string { return html.EscapeString(printable(text)) }
