package httpapi_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/droverhq/drover/internal/httpapi"
	"github.com/droverhq/drover/internal/httpapi/httpapitest"
)

type object = map[string]any

func description(t *testing.T) object {
	w := send(open(t, &httpapitest.Node{}), "GET", "/openapi.json", "")
	require.Equal(t, 200, w.Code)
	var doc object
	require.NoError(t, json.Unmarshal(w.Body.Bytes(), &doc))
	return doc
}

// TestOpenAPI: /openapi.json is OpenAPI 3.1 as far as its rules reach here, and describes every route (spec 5.4).
func TestOpenAPI(t *testing.T) {
	doc := description(t)
	assert.Equal(t, "3.1.0", doc["openapi"])
	info := doc["info"].(object)
	assert.Equal(t, "v1.2.3", info["version"])
	assert.NotEmpty(t, info["title"])

	paths := doc["paths"].(object)
	ids, count := map[string]bool{}, 0
	for path, item := range paths {
		for method, v := range item.(object) {
			count++
			op := v.(object)
			name := strings.ToUpper(method) + " " + path
			assert.Contains(t, httpapi.Routes(), name)
			id := op["operationId"].(string)
			assert.Regexp(t, "^[a-zA-Z]+$", id)
			assert.False(t, ids[id], "operationId %s is there twice", id)
			ids[id] = true
			assert.NotEmpty(t, op["summary"], name)

			inPath := map[string]bool{}
			list, _ := op["parameters"].([]any)
			for _, p := range list {
				p := p.(object)
				assert.Contains(t, []string{"path", "query", "header"}, p["in"])
				assert.NotNil(t, p["schema"])
				if p["in"] == "path" {
					assert.Equal(t, true, p["required"])
					inPath[p["name"].(string)] = true
				}
			}
			for part := range strings.SplitSeq(path, "/") {
				if strings.HasPrefix(part, "{") {
					assert.True(t, inPath[strings.Trim(part, "{}")], "%s: parameter %s", name, part)
				}
			}
			assert.Equal(t, strings.Count(path, "{"), len(inPath), name)

			success := false
			for status, r := range op["responses"].(object) {
				assert.Regexp(t, "^[2-5][0-9][0-9]$", status)
				assert.NotEmpty(t, r.(object)["description"], "%s %s", name, status)
				success = success || status[0] == '2'
			}
			assert.True(t, success, name)
			assert.Contains(t, op["responses"].(object), "400", name)
			_, security := op["security"]
			assert.True(t, security, name)
			if method == "put" {
				assert.Len(t, op["requestBody"].(object)["content"], 2)
			}
		}
	}
	assert.Equal(t, len(httpapi.Routes()), count)
	checkRefs(t, doc, doc)
	assert.Equal(t, object{"type": []any{"integer", "null"}}, schemaOf(doc, "Shard")["properties"].(object)["entities"])
}

func schemaOf(doc object, name string) object {
	return doc["components"].(object)["schemas"].(object)[name].(object)
}

func checkRefs(t *testing.T, doc object, v any) {
	switch v := v.(type) {
	case object:
		if ref, ok := v["$ref"].(string); ok {
			name, found := strings.CutPrefix(ref, "#/components/schemas/")
			assert.True(t, found, ref)
			assert.NotNil(t, schemaOf(doc, name), ref)
		}
		for _, inner := range v {
			checkRefs(t, doc, inner)
		}
	case []any:
		for _, inner := range v {
			checkRefs(t, doc, inner)
		}
	}
}

// TestAnswersFollowOpenAPI: the golden answers are valid by the schemas that openapi.json gives for them.
func TestAnswersFollowOpenAPI(t *testing.T) {
	doc := description(t)
	for file, schema := range map[string]string{
		"members": "Members", "leader": "Leader", "shards": "Shards", "strategies": "Strategies", "dead-letters": "DeadLetters", "explain": "Explain",
		"ready": "Ready", "not-ready": "Ready", "swap": "Swap", "problem": "Problem", "refused": "Problem",
	} {
		raw, err := os.ReadFile(filepath.Join("testdata", file+".json"))
		require.NoError(t, err)
		var v any
		require.NoError(t, json.Unmarshal(raw, &v))
		assert.Empty(t, violations(doc, schemaOf(doc, schema), v, file))
	}
	// The checker itself can say no.
	bad := object{"name": 1.0, "address": "x", "extra": true}
	assert.Len(t, violations(doc, schemaOf(doc, "Leader"), bad, "bad"), 3)
}

// violations checks the part of JSON Schema that openapi.go uses, and that no property is unknown.
func violations(doc, schema object, v any, at string) []string {
	if ref, ok := schema["$ref"].(string); ok {
		return violations(doc, schemaOf(doc, strings.TrimPrefix(ref, "#/components/schemas/")), v, at)
	}
	if list, ok := schema["anyOf"].([]any); ok {
		var all []string
		for _, s := range list {
			bad := violations(doc, s.(object), v, at)
			if bad == nil {
				return nil
			}
			all = append(all, bad...)
		}
		return all
	}
	is := map[string]bool{}
	switch v := v.(type) {
	case nil:
		is["null"] = true
	case string:
		is["string"] = true
	case bool:
		is["boolean"] = true
	case float64:
		is["integer"] = v == float64(int64(v))
	case []any:
		is["array"] = true
	case object:
		is["object"] = true
	}
	types, several := schema["type"].([]any)
	if !several {
		types = []any{schema["type"]}
	}
	fits := false
	for _, name := range types {
		fits = fits || is[name.(string)]
	}
	if !fits {
		return []string{fmt.Sprintf("%s: %v is no %v", at, v, types)}
	}
	var bad []string
	switch v := v.(type) {
	case []any:
		for i, inner := range v {
			bad = append(bad, violations(doc, schema["items"].(object), inner, fmt.Sprintf("%s[%d]", at, i))...)
		}
	case object:
		properties, _ := schema["properties"].(object)
		for _, name := range schema["required"].([]any) {
			if _, ok := v[name.(string)]; !ok {
				bad = append(bad, fmt.Sprintf("%s: %s is missing", at, name))
			}
		}
		for name, inner := range v {
			if s, ok := properties[name].(object); ok {
				bad = append(bad, violations(doc, s, inner, at+"."+name)...)
			} else {
				bad = append(bad, fmt.Sprintf("%s: %s is not described", at, name))
			}
		}
	}
	return bad
}

// The values of a cause and of a state are told to machines (spec 2.5).
func TestEnumsAreDescribed(t *testing.T) {
	properties := schemaOf(description(t), "Explain")["properties"].(object)
	assert.Contains(t, properties["cause"].(object)["enum"], "rebalance")
	assert.Contains(t, properties["state"].(object)["enum"], "unassigned")
	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "http.md"))
	require.NoError(t, err)
	for _, cause := range properties["cause"].(object)["enum"].([]any) {
		if cause != "" {
			assert.Contains(t, string(page), "`"+cause.(string)+"`")
		}
	}
}
