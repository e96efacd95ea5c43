package tomldoc_test

import (
	"testing"
	"time"

	"github.com/BurntSushi/toml"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/droverhq/drover/internal/tomldoc"
)

func TestLocate(t *testing.T) {
	spots := tomldoc.Locate("a = 1\nb.c = 'x' # not here\n[t.\"o k\"]\n\tü = [ 1,\n  { d = 2 } ]\n[[l]]\n[[l]]\nx = \"\"\"a\nb\"\"\"\ny = 2\n")
	for path, want := range map[string]tomldoc.Spot{
		"a":                {Key: tomldoc.Position{Line: 1, Col: 1}, Value: tomldoc.Position{Line: 1, Col: 5}},
		"b.c":              {Key: tomldoc.Position{Line: 2, Col: 1}, Value: tomldoc.Position{Line: 2, Col: 7}},
		`t."o k"."ü"`:      {Key: tomldoc.Position{Line: 4, Col: 2}, Value: tomldoc.Position{Line: 4, Col: 6}},
		`t."o k"."ü"[1]`:   {Key: tomldoc.Position{Line: 5, Col: 3}, Value: tomldoc.Position{Line: 5, Col: 3}},
		`t."o k"."ü"[1].d`: {Key: tomldoc.Position{Line: 5, Col: 5}, Value: tomldoc.Position{Line: 5, Col: 9}},
		"l[1]":             {Key: tomldoc.Position{Line: 7, Col: 1}, Value: tomldoc.Position{Line: 7, Col: 1}},
		"l[1].y":           {Key: tomldoc.Position{Line: 10, Col: 1}, Value: tomldoc.Position{Line: 10, Col: 5}},
	} {
		assert.Equal(t, want, spots[path], path)
	}
}

func TestParent(t *testing.T) {
	for path, want := range map[string]string{"a": "", "a.b": "a", "a[2]": "a", `a."x.y"`: "a", `"x\"y"`: "", `a."x.y"[0].z`: `a."x.y"[0]`} {
		assert.Equal(t, want, tomldoc.Parent(path), path)
	}
}

func TestSyntax(t *testing.T) {
	doc := "a = 1\nü = ?\n"
	var tree map[string]any
	_, err := toml.Decode(doc, &tree)
	require.Error(t, err)
	at, message, offset := tomldoc.Syntax(doc, err)
	assert.Equal(t, 2, at.Line)
	assert.NotEmpty(t, message)
	assert.Equal(t, at, tomldoc.At(doc, offset))
	at, message, offset = tomldoc.Syntax(doc, assert.AnError)
	assert.Equal(t, []any{tomldoc.Position{Line: 1, Col: 1}, assert.AnError.Error(), 0}, []any{at, message, offset})
}

func TestDottedKey(t *testing.T) {
	parts, rest := tomldoc.DottedKey(`a."b.c" = 1`)
	assert.Equal(t, []any{[]string{"a", "b.c"}, "= 1"}, []any{parts, rest})
}

func TestDidYouMean(t *testing.T) {
	for word, want := range map[string]string{"nods": ` (did you mean "nodes"?)`, "ndoes": ` (did you mean "nodes"?)`, "counters": ` (did you mean "counts"?)`, "zone": "", "": ""} {
		assert.Equal(t, want, tomldoc.DidYouMean(word, []string{"nodes", "counts"}), word)
	}
}

func TestValues(t *testing.T) {
	for want, v := range map[string]any{
		`a text, "x\n"`: "x\n", "a truth value, true": true, "a whole number, 1_000_000": int64(1_000_000), "a decimal number, 2.0": 2.0,
		"a list": []any{1}, "a table": map[string]any{}, "a date or time, \"2026-12-01T00:00:00Z\"": time.Date(2026, 12, 1, 0, 0, 0, 0, time.UTC),
	} {
		assert.Equal(t, want, tomldoc.Describe(v))
	}
	assert.Equal(t, `{ a = [1, "b"], "c d" = {} }`, tomldoc.FormatValue(map[string]any{"c d": map[string]any{}, "a": []any{int64(1), "b"}}))
	assert.Equal(t, []any{map[string]any{"a": int64(1)}}, tomldoc.Normal([]map[string]any{{"a": int64(1)}}))
}
