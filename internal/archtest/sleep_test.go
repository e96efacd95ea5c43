package archtest

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// sleeps gives the places of a file where time.Sleep waits by the clock of the machine: outside of a function handed to synctest.Test.
func sleeps(fset *token.FileSet, file *ast.File) (out []token.Position) {
	ast.Inspect(file, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		switch {
		case !ok:
		case isCall(call, "synctest", "Test"):
			return false
		case isCall(call, "time", "Sleep"):
			out = append(out, fset.Position(call.Pos()))
		}
		return true
	})
	return out
}

func isCall(call *ast.CallExpr, pkg, name string) bool {
	s, ok := call.Fun.(*ast.SelectorExpr)
	if !ok {
		return false
	}
	x, ok := s.X.(*ast.Ident)
	return ok && x.Name == pkg && s.Sel.Name == name
}

// Tests and benchmarks wait for what they wait for, or run on the clock of synctest: a sleep is too short on a busy machine and too long on any other.
func TestNoTestSleeps(t *testing.T) {
	files, err := Files(root)
	require.NoError(t, err)
	looked := 0
	for _, f := range files {
		if !f.Test {
			continue
		}
		looked++
		fset := token.NewFileSet()
		file, err := parser.ParseFile(fset, filepath.Join(root, f.Path), nil, parser.SkipObjectResolution)
		require.NoError(t, err)
		for _, at := range sleeps(fset, file) {
			t.Errorf("%s:%d: time.Sleep in a test: wait for the condition, or use testing/synctest", f.Path, at.Line)
		}
	}
	require.Greater(t, looked, 100)
}

func TestSleepsAreSeen(t *testing.T) {
	const src = `package p
func TestReal(t *testing.T) { go func() { time.Sleep(1) }() }
func TestFake(t *testing.T) { synctest.Test(t, func(t *testing.T) { go func() { time.Sleep(1) }() }) }
func TestBoth(t *testing.T) { synctest.Test(t, nil); time.Sleep(1) }`
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, "p_test.go", strings.NewReader(src), parser.SkipObjectResolution)
	require.NoError(t, err)
	var lines []int
	for _, at := range sleeps(fset, file) {
		lines = append(lines, at.Line)
	}
	assert.Equal(t, []int{2, 4}, lines)
}
