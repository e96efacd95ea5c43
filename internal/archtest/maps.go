package archtest

import (
	"fmt"
	"go/ast"
	"go/token"
	"go/types"
	"strings"
)

// unordered is the comment by which code says that the order of a map does not matter, with the reason.
const unordered = "unordered:"

// Unordered returns one line for each walk over a map whose order could leak: a range over a map, or over the iterators of
// package maps, that is neither sorted at once (slices.Sorted(maps.Keys(m))) nor on a line, or under a line, with a
// comment "// unordered: why".
func Unordered(fset *token.FileSet, file *ast.File, info *types.Info) []string {
	excused := map[int]bool{}
	for _, group := range file.Comments {
		for _, c := range group.List {
			text := strings.TrimSpace(strings.TrimPrefix(c.Text, "//"))
			if reason, ok := strings.CutPrefix(text, unordered); ok && strings.TrimSpace(reason) != "" {
				// The reason may run on over the lines of its comment.
				for line := fset.Position(c.Pos()).Line; line <= fset.Position(group.End()).Line+1; line++ {
					excused[line] = true
				}
			}
		}
	}
	sorted := map[ast.Node]bool{}
	var out []string
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.CallExpr:
			f := callee(n, info)
			if f == "slices.Sorted" || f == "slices.SortedFunc" || f == "slices.SortedStableFunc" {
				sorted[n.Args[0]] = true
			}
			if (f == "maps.Keys" || f == "maps.Values" || f == "maps.All") && !sorted[n] && !excused[fset.Position(n.Pos()).Line] {
				out = append(out, fmt.Sprintf("%s: %s in the order of the map", fset.Position(n.Pos()), f))
			}
		case *ast.RangeStmt:
			t := info.TypeOf(n.X)
			if t == nil {
				return true
			}
			if _, isMap := t.Underlying().(*types.Map); isMap && !excused[fset.Position(n.Pos()).Line] {
				out = append(out, fmt.Sprintf("%s: ranges over a map in its order", fset.Position(n.Pos())))
			}
		}
		return true
	})
	return out
}

// callee names the function of another package that a call calls: "slices.Sorted".
func callee(call *ast.CallExpr, info *types.Info) string {
	fun := call.Fun
	switch f := fun.(type) { // an instantiated generic
	case *ast.IndexExpr:
		fun = f.X
	case *ast.IndexListExpr:
		fun = f.X
	}
	sel, ok := fun.(*ast.SelectorExpr)
	if !ok {
		return ""
	}
	f, ok := info.Uses[sel.Sel].(*types.Func)
	if !ok || f.Pkg() == nil {
		return ""
	}
	return f.Pkg().Path() + "." + f.Name()
}
