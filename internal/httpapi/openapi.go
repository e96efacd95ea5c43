package httpapi

import (
	"encoding"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
)

type object = map[string]any

// common are the problems that any route can end in, by access.
func common(a access) []Kind {
	kinds := []Kind{KindBadRequest, KindForeignOrigin, KindInternal}
	if a != public {
		kinds = append(kinds, KindUnauthorized)
	}
	if a == admin {
		kinds = append(kinds, KindForbidden)
	}
	return kinds
}

// describe makes openapi.json (OpenAPI 3.1) of the routes.
func describe(version string) []byte {
	schemas := schemas{"Problem": nil}
	schemas["Problem"] = schemas.object(reflect.TypeFor[Body]())
	paths := object{}
	for i := range routes {
		r := &routes[i]
		item, ok := paths[r.pattern].(object)
		if !ok {
			item = object{}
			paths[r.pattern] = item
		}
		item[strings.ToLower(r.method)] = r.operation(schemas)
	}
	doc := object{
		"openapi": "3.1.0",
		"info": object{"title": "Drover", "version": version, "license": object{"name": "Apache-2.0", "identifier": "Apache-2.0"},
			"description": "The API of a node. Errors are application/problem+json; their types are listed in docs/http.md."},
		"paths": paths,
		"components": object{
			"schemas":         schemas,
			"securitySchemes": object{"token": object{"type": "http", "scheme": "bearer", "description": "http.tokens of node.toml; needed where one is set"}},
		},
	}
	b, err := json.MarshalIndent(doc, "", "  ")
	if err != nil {
		panic(err) // maps of text, numbers and maps
	}
	return append(b, '\n')
}

func (r *route) operation(s schemas) object {
	op := object{"summary": r.summary, "operationId": r.operationID(), "responses": r.responses(s)}
	var parameters []object
	for part := range strings.SplitSeq(r.pattern, "/") {
		if strings.HasPrefix(part, "{") {
			parameters = append(parameters, object{"name": strings.Trim(part, "{}"), "in": "path", "required": true, "schema": object{"type": "string"}})
		}
	}
	for _, p := range r.query {
		parameters = append(parameters, p.describe("query"))
	}
	for _, p := range r.headers {
		parameters = append(parameters, p.describe("header"))
	}
	if parameters != nil {
		op["parameters"] = parameters
	}
	if r.body != nil {
		content := object{}
		for _, m := range r.body {
			schema := object{"description": m.doc}
			if m.of != nil {
				schema = object{"allOf": []object{s.of(reflect.TypeOf(m.of))}, "description": m.doc}
			} else if m.contentType == "application/wasm" {
				schema["type"], schema["format"] = "string", "binary"
			}
			content[m.contentType] = object{"schema": schema}
		}
		op["requestBody"] = object{"required": !r.mayLackBody, "content": content}
	}
	if r.access == public {
		op["security"] = []object{}
	} else {
		op["security"] = []object{{"token": []string{}}, {}}
		op["description"] = "Needs the " + r.access.String() + " token where one is set."
	}
	return op
}

func (r *route) operationID() string {
	id := strings.ToLower(r.method)
	for part := range strings.SplitSeq(strings.NewReplacer("{", "", "}", "", ".", "/", "-", "/").Replace(r.pattern), "/") {
		if part != "" {
			id += strings.ToUpper(part[:1]) + part[1:]
		}
	}
	return id
}

func (r *route) responses(s schemas) object {
	out := object{}
	for _, status := range append([]int{r.status}, r.also...) {
		out[strconv.Itoa(status)] = r.success(s, status)
	}
	if r.inPlace != nil {
		out["200"] = object{"description": "it is so already", "content": object{"application/json": object{"schema": s.of(reflect.TypeOf(r.inPlace))}}}
	}
	byStatus := map[int][]Kind{}
	for _, k := range slices.Concat(common(r.access), r.problems) {
		byStatus[kinds[k].status] = append(byStatus[kinds[k].status], k)
	}
	for status, list := range byStatus {
		key := strconv.Itoa(status)
		if _, taken := out[key]; taken {
			continue
		}
		text := make([]string, len(list))
		for i, k := range list {
			text[i] = k.Type()
		}
		slices.Sort(text)
		out[key] = object{"description": "type is " + strings.Join(text, " or "),
			"content": object{"application/problem+json": object{"schema": object{"$ref": "#/components/schemas/Problem"}}}}
	}
	return out
}

func (r *route) success(s schemas, status int) object {
	switch v := r.reply.(type) {
	case nil:
		if r.body != nil && status == 200 { // an entity's own answer
			return object{"description": "the entity's answer", "content": object{"application/json": object{"schema": object{}}}}
		}
		return object{"description": "done, or begun"}
	case string:
		return object{"description": r.summary, "content": object{"text/plain": object{"schema": object{"type": "string"}}}}
	case map[string]any:
		return object{"description": r.summary, "content": object{"application/json": object{"schema": object{"type": "object"}}}}
	default:
		return object{"description": r.summary, "content": object{"application/json": object{"schema": s.of(reflect.TypeOf(v))}}}
	}
}

func (p param) describe(in string) object {
	schema := object{"type": "string"}
	if p.oneOf != nil {
		schema["enum"] = p.oneOf
	}
	return object{"name": p.name, "in": in, "required": p.required, "description": p.doc, "schema": schema}
}

// schemas are the named ones, by Go type.
type schemas map[string]any

var (
	textMarshaler = reflect.TypeFor[encoding.TextMarshaler]()
	rawMessage    = reflect.TypeFor[json.RawMessage]()
	byteSlice     = reflect.TypeFor[[]byte]()
)

// of gives the schema of a type as encoding/json writes it.
func (s schemas) of(t reflect.Type) object {
	switch {
	case t == rawMessage:
		return object{"type": "object"}
	case t == byteSlice:
		return object{"type": "string", "contentEncoding": "base64"}
	case t.Implements(textMarshaler):
		return object{"type": "string"}
	}
	switch t.Kind() {
	case reflect.Pointer:
		inner := s.of(t.Elem())
		if kind, ok := inner["type"].(string); ok {
			inner["type"] = []string{kind, "null"}
			return inner
		}
		return object{"anyOf": []object{inner, {"type": "null"}}}
	case reflect.Struct:
		name := strings.TrimSuffix(t.Name(), "View")
		if _, ok := s[name]; !ok {
			s[name] = nil // a type may hold itself
			s[name] = s.object(t)
		}
		return object{"$ref": "#/components/schemas/" + name}
	case reflect.Slice:
		return object{"type": "array", "items": s.of(t.Elem())}
	case reflect.String:
		return object{"type": "string"}
	case reflect.Bool:
		return object{"type": "boolean"}
	case reflect.Int, reflect.Int64, reflect.Int32:
		return object{"type": "integer"}
	case reflect.Uint, reflect.Uint64, reflect.Uint32:
		return object{"type": "integer", "minimum": 0}
	}
	panic(fmt.Sprintf("openapi: no schema for %s", t)) // the types are those of routes
}

func (s schemas) object(t reflect.Type) object {
	properties, required := object{}, []string{}
	for _, f := range reflect.VisibleFields(t) { // those of an embedded struct stand beside the others
		if f.Anonymous {
			continue
		}
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		properties[name] = s.of(f.Type)
		if values, ok := f.Tag.Lookup("oneOf"); ok {
			properties[name] = object{"type": "string", "enum": strings.Split(values, ",")}
		}
		if !strings.Contains(options, "omit") {
			required = append(required, name)
		}
	}
	return object{"type": "object", "properties": properties, "required": required}
}
