// Package archtest checks the import rules of the project and the purity of its core (docs/adr/0001-layout.md), each
// rule with its reason. It holds nothing but the checker; the rules run in its test. The same import rules are in
// .golangci.yml for editors.
package archtest

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Module is the import path of the project.
const Module = "github.com/droverhq/drover"

// Rule says what some packages may import. Patterns are import paths; "/..." at the end takes what is below too, and a
// path without a dot in its first element is one of the project's own, unless it is in Std.
type Rule struct {
	Name   string
	Reason string
	In     []string // packages that the rule is about; "..." is all
	Except []string
	Deny   []string // imports that are wrong
	Allow  []string // if set: the only imports from outside the standard library that are right
	Std    []string // standard packages that are wrong
	Tests  bool     // whether test files must keep to it too
}

// File is one Go file: where it is and what it imports.
type File struct {
	Package string // relative to the module, "." at the root
	Path    string // relative to the module
	Test    bool
	Imports []string
}

// Files reads the imports of every Go file below dir, build tags ignored, nested modules and testdata left out.
func Files(dir string) ([]File, error) {
	var files []File
	err := filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(dir, p)
		if err != nil {
			return err
		}
		rel = filepath.ToSlash(rel)
		if d.IsDir() {
			name := d.Name()
			_, nested := os.Stat(filepath.Join(p, "go.mod"))
			if rel != "." && (name == "testdata" || name == "bin" || strings.HasPrefix(name, ".") || strings.HasPrefix(name, "_") || nested == nil) {
				return fs.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(p, ".go") {
			return nil
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), p, nil, parser.ImportsOnly)
		if err != nil {
			return err
		}
		f := File{Package: path.Dir(rel), Path: rel, Test: strings.HasSuffix(p, "_test.go")}
		for _, spec := range parsed.Imports {
			imported, err := strconv.Unquote(spec.Path.Value)
			if err != nil {
				return err
			}
			f.Imports = append(f.Imports, imported)
		}
		files = append(files, f)
		return nil
	})
	return files, err
}

// Check returns one line for each import that breaks a rule.
func Check(files []File, rules []Rule) []string {
	var out []string
	for _, f := range files {
		for _, r := range rules {
			if f.Test && !r.Tests || !matches(r.In, f.Package) || matches(r.Except, f.Package) {
				continue
			}
			for _, imported := range f.Imports {
				if wrong(r, f.Package, imported) {
					out = append(out, fmt.Sprintf("%s imports %s: %s (%s)", f.Path, imported, r.Name, r.Reason))
				}
			}
		}
	}
	slices.Sort(out)
	return out
}

func wrong(r Rule, pkg, imported string) bool {
	own, isOwn := strings.CutPrefix(imported, Module)
	own = strings.TrimPrefix(own, "/")
	if own == "" {
		own = "."
	}
	switch {
	case isOwn && own == pkg: // an external test of the package itself
		return false
	case isOwn:
		return matches(r.Deny, own) || r.Allow != nil && !matches(r.Allow, own)
	case standard(imported):
		return matches(r.Std, imported)
	default:
		return matches(r.Deny, imported) || r.Allow != nil && !matches(r.Allow, imported)
	}
}

// standard says whether an import path is of the standard library: its first element has no dot.
func standard(imported string) bool {
	first, _, _ := strings.Cut(imported, "/")
	return !strings.Contains(first, ".")
}

func matches(patterns []string, p string) bool {
	for _, pattern := range patterns {
		if pattern == "..." || pattern == p {
			return true
		}
		if prefix, ok := strings.CutSuffix(pattern, "/..."); ok && (p == prefix || strings.HasPrefix(p, prefix+"/")) {
			return true
		}
	}
	return false
}

// Impure returns one line for each thing in a file that a deterministic state machine must not do: start goroutines, use
// channels, read a clock, draw from a random source that is not its own. Wrong imports are the rules' business, and order
// of maps that of Unordered.
func Impure(fset *token.FileSet, file *ast.File, info *types.Info) []string {
	var out []string
	report := func(at token.Pos, what string) {
		out = append(out, fmt.Sprintf("%s: %s", fset.Position(at), what))
	}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.GoStmt:
			report(n.Pos(), "starts a goroutine")
		case *ast.ChanType:
			report(n.Pos(), "uses a channel")
		case *ast.SelectStmt:
			report(n.Pos(), "selects over channels")
		case *ast.SendStmt:
			report(n.Pos(), "sends on a channel")
		case *ast.SelectorExpr:
			x, ok := n.X.(*ast.Ident)
			if !ok {
				return true
			}
			used, ok := info.Uses[x].(*types.PkgName) // a local variable may hide the import
			if !ok {
				return true
			}
			switch used.Imported().Path() {
			case "time":
				if slices.Contains([]string{"Now", "Since", "Until", "Sleep", "After", "AfterFunc", "Tick", "NewTimer", "NewTicker"}, n.Sel.Name) {
					report(n.Pos(), "reads the clock with time."+n.Sel.Name)
				}
			case "math/rand", "math/rand/v2":
				if !slices.Contains([]string{"Rand", "Source", "New", "NewPCG", "NewChaCha8", "PCG", "ChaCha8", "NewSource", "NewZipf", "Zipf"}, n.Sel.Name) {
					report(n.Pos(), "draws from the process's random source with rand."+n.Sel.Name)
				}
			}
		}
		return true
	})
	return out
}
