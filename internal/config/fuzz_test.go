package config

import (
	"strings"
	"testing"

	"github.com/BurntSushi/toml"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/droverhq/drover/internal/tomldoc"
)

// FuzzLoad: no file, variable or flag makes the parser panic; what loads shows and loads again as the same; every key of
// a file has a place in it.
func FuzzLoad(f *testing.F) {
	f.Add(Sample(), "name=b", "DROVER_ZONE=z")
	f.Add("http = { tokens = { admin = \"\" } }\n", `gossip.join=["127.0.0.1:1"]`, "DROVER_GOSSIP_KEYS=a,b")
	f.Add("[[type]]\nname='a'\nentity='counter'\n[[type.config.rules]]\nx=1\n[[type.config.rules]]\n[type.config.\"a.b\".'c']\nd=[[],[{}]]", "type.a.config.x.y=1", "")
	f.Add("a.b.c = '''x''''\nd = \"\"\"\\\"\"\"\"\n", "type=[{}]", "DROVER_TYPE_X_NAME=1")
	f.Add("roles = [ # c\n'a' ,\n]\r\ntags.x = \"#\"\n", "tags.\"x y\"=]", "")
	f.Add("[a]\n[[a.b]]\n[a.b.c]\nd=1979-05-27 07:32:00\n[[a.b]]\n", "x", "")
	f.Fuzz(func(t *testing.T, doc, set, env string) {
		var tree map[string]any
		if meta, err := toml.Decode(doc, &tree); err == nil {
			spots := tomldoc.Locate(doc)
			lines := strings.Count(doc, "\n") + 1
			for path := range paths(tomldoc.Normal(tree), "", map[string]bool{}) {
				s, ok := spots[path]
				if !ok {
					t.Errorf("%q has no place in %q (keys %v)", path, doc, meta.Keys())
				}
				if s.Value.Line < 1 || s.Value.Line > lines || s.Value.Col < 1 || s.Key.Line < 1 || s.Key.Col < 1 {
					t.Errorf("%q is at %v in %q", path, s, doc)
				}
			}
		}
		c, err := Load(Options{File: "node.toml", Data: []byte(doc), Set: []string{set}, Env: []string{env}, Hostname: host})
		if err != nil {
			assert.NotEmpty(t, err.Error())
			return
		}
		c.Gossip.Keys, c.HTTP.AdminToken, c.HTTP.ReadToken, c.HTTP.InsecureBind, c.warnings = nil, "", "", true, nil
		back, err := Load(Options{Data: []byte(c.Show()), Hostname: host})
		require.NoError(t, err, c.Show())
		assert.Equal(t, c.Show(), back.Show())
		c.Tree()
	})
}

// paths lists the path of everything in a tree.
func paths(v any, path string, into map[string]bool) map[string]bool {
	if path != "" {
		into[path] = true
	}
	switch v := v.(type) {
	case map[string]any:
		for k, e := range v {
			paths(e, tomldoc.Join(path, k), into)
		}
	case []any:
		for i, e := range v {
			paths(e, tomldoc.Index(path, i), into)
		}
	}
	return into
}
