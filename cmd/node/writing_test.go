package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestWritingStrategies does what docs/writing-strategies.md says, in a module of its own: its files compile, its test passes, and the commands print what the
// page shows (spec 1.6).
func TestWritingStrategies(t *testing.T) {
	data, err := os.ReadFile(filepath.Join("..", "..", "docs", "writing-strategies.md"))
	require.NoError(t, err)
	root, err := filepath.Abs(filepath.Join("..", ".."))
	require.NoError(t, err)
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	require.NoError(t, os.Mkdir(at("guest"), 0o700))
	found := regexp.MustCompile("(?s)`([a-z_/]+\\.(?:mod|go|json))`:\n\n```[a-z]*\n(.*?)```").FindAllStringSubmatch(string(data), -1)
	var names []string
	for _, m := range found {
		names = append(names, m[1])
		require.NoError(t, os.WriteFile(at(m[1]), []byte(strings.Replace(m[2], "../drover", root, 1)), 0o600))
	}
	require.Equal(t, []string{"go.mod", "strategy.go", "guest/main.go", "strategy_test.go", "input.json"}, names)

	build := regexp.MustCompile(`(?m)^\$ ((?:GOOS=.*)?go .*)$`).FindAllStringSubmatch(string(data), -1)
	require.Len(t, build, 2)
	for _, line := range build {
		cmd := exec.Command("sh", "-c", line[1])
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "GOWORK=off", "GOFLAGS=", "GOPROXY=off") // nothing is downloaded
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s: %s", line[1], out)
	}
	require.Equal(t, 5, runPage(t, string(data), dir))
}

// runPage runs the commands of drover that a page shows, in a folder, holds what they print against the page, and returns how many there are.
func runPage(t *testing.T, page, dir string) int {
	t.Helper()
	t.Setenv("XDG_CACHE_HOME", filepath.Join(dir, "cache"))
	t.Chdir(dir)
	commands := regexp.MustCompile(`(?m)^\$ drover (strategy (?:check|run|bench|profile) .*)\n((?:[^$\x60].*\n)*)`).FindAllStringSubmatch(page, -1)
	for _, m := range commands {
		var out, errs bytes.Buffer
		require.Zero(t, run(strings.Fields(m[1]), strings.NewReader(""), &out, &errs), "%s: %s", m[1], errs.String())
		assert.Empty(t, errs.String(), m[1])
		for want := range strings.Lines(m[2]) {
			for part := range strings.SplitSeq(strings.TrimSpace(want), "…") {
				assert.Contains(t, out.String(), part, m[1])
			}
		}
	}
	return len(commands)
}

// TestStrategiesInOtherLanguages does what the pages of other languages say, where their compiler is there: nobody needs one for a language that they don't
// write, and CI has none. The files of a page are cut out of it everywhere.
func TestStrategiesInOtherLanguages(t *testing.T) {
	for _, lang := range []struct {
		page, tool string
		probe      string   // a shell command that fails where the tool cannot build for wasm
		beside     []string // files and folders of the examples that lie beside the page's
		files      []string
	}{
		{"strategies-in-c.md", "clang", "command -v clang && command -v wasm-ld", []string{"c/drover.h"}, []string{"mine.c", "input.json"}},
		{"strategies-in-rust.md", "rustc", `test -d "$(rustc --print target-libdir --target wasm32-unknown-unknown)"`, []string{"rust/drover"}, []string{"mine.rs", "input.json"}},
		{"strategies-in-assemblyscript.md", "asc", "command -v asc", []string{"assemblyscript/drover.ts"}, []string{"mine.ts", "input.json"}},
		{"strategies-in-wat.md", "wat2wasm", "command -v wat2wasm", []string{"wat/round-robin.wat"}, []string{"input.json"}},
	} {
		t.Run(lang.page, func(t *testing.T) {
			root := filepath.Join("..", "..")
			data, err := os.ReadFile(filepath.Join(root, "docs", lang.page))
			require.NoError(t, err)
			dir := t.TempDir()
			var names []string
			for _, m := range regexp.MustCompile("(?s)`([a-z_]+\\.[a-z]+)`:\n\n```[a-z]*\n(.*?)```").FindAllStringSubmatch(string(data), -1) {
				names = append(names, m[1])
				require.NoError(t, os.WriteFile(filepath.Join(dir, m[1]), []byte(m[2]), 0o600))
			}
			require.Equal(t, lang.files, names)
			for _, name := range lang.beside {
				from, to := filepath.Join(root, "plugins-examples", filepath.FromSlash(name)), filepath.Join(dir, filepath.Base(name))
				file, err := os.ReadFile(from)
				if err != nil { // a folder
					require.NoError(t, os.CopyFS(to, os.DirFS(from)))
					continue
				}
				require.NoError(t, os.WriteFile(to, file, 0o600))
			}
			builds := regexp.MustCompile(`(?m)^\$ (`+lang.tool+` .*)$`).FindAllStringSubmatch(string(data), -1)
			require.NotEmpty(t, builds)
			sh := func(line string) ([]byte, error) {
				cmd := exec.Command("sh", "-c", line)
				cmd.Dir = dir
				cmd.Env = append(os.Environ(), "PATH=/usr/bin"+string(os.PathListSeparator)+os.Getenv("PATH")) // the distribution's first, as the pages say
				return cmd.CombinedOutput()
			}
			if _, err := sh(lang.probe); err != nil {
				t.Logf("%s is not here, or not for wasm: the page's commands are not run", lang.tool)
				return
			}
			for _, line := range builds {
				out, err := sh(line[1])
				require.NoError(t, err, "%s: %s", line[1], out)
				require.Empty(t, string(out), line[1])
			}
			require.Equal(t, 2, runPage(t, string(data), dir))
		})
	}
}
