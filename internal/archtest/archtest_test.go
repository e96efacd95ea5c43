package archtest

import (
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/tools/go/packages"
)

var root = filepath.Join("..", "..")

// TestImports holds the whole tree against the import rules.
func TestImports(t *testing.T) {
	files, err := Files(root)
	require.NoError(t, err)
	require.Greater(t, len(files), 20, "is this the root of the module?")
	for _, problem := range Check(files, Rules) {
		t.Error(problem)
	}
}

func TestRulesHaveReasons(t *testing.T) {
	for _, r := range Rules {
		assert.NotEmpty(t, r.Reason, r.Name)
		assert.NotEmpty(t, r.In, r.Name)
		assert.True(t, len(r.Deny) > 0 || r.Allow != nil || len(r.Std) > 0, r.Name)
	}
}

// TestCore: the state machines neither run, wait, look at a clock nor depend on the order of maps.
func TestCore(t *testing.T) {
	patterns := []string{}
	for _, p := range core {
		patterns = append(patterns, "./"+p)
	}
	loaded, err := packages.Load(&packages.Config{
		Dir:  root,
		Mode: packages.NeedName | packages.NeedFiles | packages.NeedCompiledGoFiles | packages.NeedSyntax | packages.NeedTypes | packages.NeedTypesInfo | packages.NeedImports,
	}, patterns...)
	require.NoError(t, err)
	checked := 0
	for _, p := range loaded {
		if len(p.GoFiles) == 0 { // a package that is still to come
			continue
		}
		for _, e := range p.Errors {
			t.Error(e)
		}
		for _, file := range p.Syntax {
			checked++
			for _, problem := range append(Impure(p.Fset, file, p.TypesInfo), Unordered(p.Fset, file, p.TypesInfo)...) {
				t.Error(problem)
			}
		}
	}
	assert.Positive(t, checked)
}

// TestCheckSeesViolations: each rule goes red on a file that breaks it, and stays green beside it.
func TestCheckSeesViolations(t *testing.T) {
	own := func(p string) string { return Module + "/" + p }
	for _, tc := range []struct {
		pkg, imported string
		test          bool
		rule          string // empty: no rule is broken
	}{
		{"node", "github.com/hashicorp/serf/serf", false, "only internal/cluster imports serf"},
		{"node", "github.com/hashicorp/memberlist", true, "only internal/cluster imports serf"},
		{"internal/cluster", "github.com/hashicorp/serf/serf", false, ""},
		{"internal/httpapi", "github.com/hashicorp/raft", false, "only internal/controlplane imports raft"},
		{"internal/controlplane", "github.com/hashicorp/raft-wal", false, ""},
		{"cmd/node", "github.com/tetratelabs/wazero/api", false, "only host imports wazero"},
		{"host/internal/fuel", "github.com/tetratelabs/wazero", false, "fuel imports wasmbin alone"},
		{"host/internal/fuel", "github.com/tetratelabs/wazero", true, ""},
		{"host/internal/fuel", own("host/internal/wasmbin"), false, ""},
		{"host/internal/reference", own("host/internal/fuel"), false, "the reference interpreter imports wasmbin alone"},
		{"host/internal/reference", own("host/internal/wasmbin"), false, ""},
		{"host/internal/wasmbin", own("host/internal/fuel"), false, "wasmbin imports the standard library alone"},
		{"node", "google.golang.org/grpc", false, "only internal/transport imports grpc"},
		{"pluginapi", "github.com/fxamacker/cbor/v2", false, "pluginapi imports the standard library alone"},
		{"pluginapi/snapshotfile", "github.com/fxamacker/cbor/v2", false, ""},
		{"sharding/coordinator", own("strategies"), false, "the core imports sharding, pluginapi and pure strategies alone"},
		{"sharding/coordinator", own("strategies/hash"), false, ""},
		{"strategies/hash", own("sharding"), false, "a strategy imports pluginapi alone"},
		{"strategies/hash", "time", false, "a strategy imports pluginapi alone"},
		{"strategies/hash", own("pluginapi"), false, ""},
		{"sharding/region", "context", false, "the core imports sharding, pluginapi and pure strategies alone"},
		{"sharding/coordinator", "sync/atomic", false, "the core imports sharding, pluginapi and pure strategies alone"},
		{"sharding/coordinator", "hash/maphash", false, "the core imports sharding, pluginapi and pure strategies alone"},
		{"sharding/coordinator", own("host"), false, "the core imports sharding, pluginapi and pure strategies alone"},
		{"sharding/coordinator", own("sharding/protocol"), false, ""},
		{"sharding", own("sharding/region"), false, "sharding is the vocabulary and imports none of its parts"},
		{"sharding/anything", own("internal/config"), false, "nothing below sharding imports an adapter"},
		{"node", own("sharding/simulation"), false, "only tests import the simulation"},
		{"node", own("sharding/simulation"), true, ""},
		{"internal/httpapi", own("node"), false, "an adapter imports neither node nor cmd"},
		{"node", own("cmd/node"), false, "node does not import cmd"},
		{"internal/httpapi", own("internal/cluster"), false, "httpapi imports no adapter that runs the cluster"},
		{"internal/config", own("sharding"), false, "config and tomldoc import toml alone"},
		{"node", "testing", false, "testify stays in tests"},
		{"host/harness", "github.com/stretchr/testify/assert", false, ""},
		{"host/harness/lab", "testing", false, "testify stays in tests"},
		{"host/harness/lab", "pgregory.net/rapid", false, "testify stays in tests"},
		{"cmd/node", own("host/harness"), false, "only tests import the harness"},
		{"cmd/node", own("host/harness/lab"), false, ""},
		{"plugins-examples/role-pinning", own("host/harness"), true, ""},
	} {
		file := File{Package: tc.pkg, Path: tc.pkg + "/x.go", Test: tc.test, Imports: []string{tc.imported}}
		problems := Check([]File{file}, Rules)
		if tc.rule == "" {
			assert.Empty(t, problems, "%s importing %s", tc.pkg, tc.imported)
			continue
		}
		assert.Contains(t, strings.Join(problems, "\n"), tc.rule, "%s importing %s", tc.pkg, tc.imported)
	}
}

// TestFilesOfFixture: the reader finds files behind build tags, and leaves testdata and nested modules alone.
func TestFilesOfFixture(t *testing.T) {
	files, err := Files(filepath.Join("testdata", "tree"))
	require.NoError(t, err)
	problems := Check(files, Rules)
	assert.Equal(t, []string{
		"node/tagged.go imports github.com/hashicorp/serf/serf: " + Rules[0].Name + " (" + Rules[0].Reason + ")",
	}, problems)
}

// TestPurityFixture: each impurity of the fixture is found on its line, which a comment there names.
func TestPurityFixture(t *testing.T) {
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, filepath.Join("testdata", "impure", "impure.go"), nil, parser.ParseComments)
	require.NoError(t, err)
	info := &types.Info{Types: map[ast.Expr]types.TypeAndValue{}, Uses: map[*ast.Ident]types.Object{}, Defs: map[*ast.Ident]types.Object{}}
	_, err = (&types.Config{Importer: importer.ForCompiler(fset, "source", nil)}).Check("impure", fset, []*ast.File{file}, info)
	require.NoError(t, err)

	var want []string
	for _, group := range file.Comments {
		for _, c := range group.List {
			if text, ok := strings.CutPrefix(c.Text, "// want: "); ok {
				want = append(want, strings.Join([]string{position(fset, c.Pos()), text}, " "))
			}
		}
	}
	var have []string
	for _, problem := range append(Impure(fset, file, info), Unordered(fset, file, info)...) {
		place, text, ok := strings.Cut(problem, ": ")
		require.True(t, ok, problem)
		have = append(have, strings.Split(place, ":")[1]+" "+text)
	}
	require.NotEmpty(t, want)
	assert.ElementsMatch(t, want, have)
}

func position(fset *token.FileSet, at token.Pos) string {
	return strings.Split(fset.Position(at).String(), ":")[1]
}
