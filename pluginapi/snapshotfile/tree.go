package snapshotfile

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"maps"
	"math"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/fxamacker/cbor/v2"

	"github.com/droverhq/drover/pluginapi"
)

// maxDepth bounds the nesting of a JSON input, as the contract's decoders bound that of CBOR.
const maxDepth = 32

var cborMode = func() cbor.DecMode {
	mode, err := cbor.DecOptions{
		DupMapKey:        cbor.DupMapKeyEnforcedAPF,
		DefaultMapType:   reflect.TypeFor[map[string]any](),
		MaxNestedLevels:  maxDepth,
		MaxArrayElements: 1 << 24,
	}.DecMode()
	if err != nil {
		panic(err) // the options are constant
	}
	return mode
}()

// parseTree reads CBOR or JSON into nil, bool, int64, uint64, float64, string, []byte, []any, map[string]any, cbor.Tag.
func parseTree(data []byte) (any, error) {
	text := bytes.TrimLeft(data, " \t\r\n")
	if len(text) == 0 {
		return nil, errors.New("the input is empty: want CBOR, or JSON of the same shape")
	}
	if text[0] == '{' {
		return parseJSON(data)
	}
	if data[0]>>5 != 5 {
		return nil, errors.New("the input is neither JSON, which starts with {, nor a CBOR map")
	}
	var tree any
	if err := cborMode.Unmarshal(data, &tree); err != nil {
		return nil, fmt.Errorf("the input is not CBOR of the contract: %w", err)
	}
	return tree, nil
}

func parseJSON(data []byte) (any, error) {
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	tree, err := jsonValue(d, "", 0)
	if err == nil {
		if _, err = d.Token(); err == io.EOF {
			return tree, nil
		}
		if err == nil {
			err = errors.New("something follows the value")
		}
	}
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		err = errors.New("it ends too early")
	}
	before := data[:min(int(d.InputOffset()), len(data))]
	line := 1 + bytes.Count(before, []byte("\n"))
	return nil, fmt.Errorf("the input is not good JSON: line %d, column %d: %w", line, len(before)-bytes.LastIndexByte(before, '\n'), err)
}

func jsonValue(d *json.Decoder, path string, depth int) (any, error) {
	token, err := d.Token()
	if err != nil {
		return nil, err
	}
	if depth > maxDepth {
		return nil, fault(path, "nested too deep")
	}
	switch t := token.(type) {
	case json.Delim:
		if t == '[' {
			list := []any{}
			for d.More() {
				v, err := jsonValue(d, at(path, len(list)), depth+1)
				if err != nil {
					return nil, err
				}
				list = append(list, v)
			}
			_, err = d.Token()
			return list, err
		}
		table := map[string]any{}
		for d.More() {
			key, err := d.Token()
			if err != nil {
				return nil, err
			}
			name := key.(string) // a JSON key is text
			if _, twice := table[name]; twice {
				return nil, fault(child(path, name), "the key comes twice")
			}
			if table[name], err = jsonValue(d, child(path, name), depth+1); err != nil {
				return nil, err
			}
		}
		_, err = d.Token()
		return table, err
	case json.Number:
		return number(path, t.String())
	}
	return token, nil
}

func number(path, text string) (any, error) {
	if n, err := strconv.ParseUint(text, 10, 64); err == nil {
		return n, nil
	}
	if n, err := strconv.ParseInt(text, 10, 64); err == nil {
		return n, nil
	}
	f, err := strconv.ParseFloat(text, 64)
	if err != nil || !strings.ContainsAny(text, ".eE") {
		return nil, fault(path, "the number %s is out of range", text)
	}
	return f, nil
}

// kind names a value's kind for messages.
func kind(v any) string {
	switch v := v.(type) {
	case nil:
		return "null"
	case bool:
		return "a boolean"
	case int64, uint64:
		return fmt.Sprintf("the number %d", v)
	case float64:
		return fmt.Sprintf("the number %v", v)
	case string:
		return fmt.Sprintf("the text %q", v)
	case []any:
		return "a list"
	case map[string]any:
		return "a map"
	case []byte:
		return "a byte string"
	case cbor.Tag:
		return fmt.Sprintf("a value with tag %d", v.Number)
	case time.Time:
		return "a date or time"
	}
	return fmt.Sprintf("a %T", v)
}

func mapKeys[V any](m map[string]V) iter.Seq[string] { return maps.Keys(m) }

func listOf(path string, v any) ([]any, error) {
	list, ok := v.([]any)
	if !ok {
		return nil, fault(path, "want a list, got %s", kind(v))
	}
	return list, nil
}

func mapOf(path string, v any) (map[string]any, error) {
	m, ok := v.(map[string]any)
	if !ok {
		return nil, fault(path, "want a map, got %s", kind(v))
	}
	return m, nil
}

func textOf(path string, v any) (string, error) {
	s, ok := v.(string)
	if !ok {
		return "", fault(path, "want text, got %s", kind(v))
	}
	return s, nil
}

func unsigned(v any) (uint64, bool) {
	switch n := v.(type) {
	case uint64:
		return n, true
	case int64:
		return uint64(n), n >= 0
	}
	return 0, false
}

func uintOf(path string, v any, most uint64) (uint64, error) {
	n, ok := unsigned(v)
	if !ok {
		return 0, fault(path, "want a whole number of at least 0, got %s", kind(v))
	}
	if n > most {
		return 0, fault(path, "%d is too large: at most %d", n, most)
	}
	return n, nil
}

func floatOf(v any) (float64, bool) {
	switch n := v.(type) {
	case float64:
		return n, true
	case int64:
		return float64(n), true
	case uint64:
		return float64(n), true
	}
	return 0, false
}

func floats(path string, v any) ([]float64, error) {
	list, err := listOf(path, v)
	if err != nil {
		return nil, err
	}
	vs := make([]float64, len(list))
	for i, e := range list {
		var ok bool
		if vs[i], ok = floatOf(e); !ok {
			return nil, fault(at(path, i), "want a number, got %s", kind(e))
		}
	}
	return vs, nil
}

// widths of the elements of typed arrays, by tag (RFC 8746, 2.1; little-endian).
var widths = map[uint64]int{69: 2, 70: 4, 71: 8}

// typedArray returns the bytes of a typed array of unsigned integers, if v is one of these widths.
func typedArray(v any, allowed ...int) (raw []byte, width int, ok bool) {
	tag, isTag := v.(cbor.Tag)
	if !isTag {
		return nil, 0, false
	}
	raw, isBytes := tag.Content.([]byte)
	width = widths[tag.Number]
	for _, w := range allowed {
		if w == width && isBytes && len(raw)%w == 0 {
			return raw, width, true
		}
	}
	return nil, 0, false
}

func typedFloats(v any) (raw []byte, width int, ok bool) {
	tag, isTag := v.(cbor.Tag)
	if !isTag || tag.Number != 86 {
		return nil, 0, false
	}
	raw, ok = tag.Content.([]byte)
	return raw, 8, ok && len(raw)%8 == 0
}

func elements(raw []byte, width int) iter.Seq2[int, uint64] {
	return func(yield func(int, uint64) bool) {
		for i := 0; i < len(raw)/width; i++ {
			var n uint64
			switch b := raw[i*width:]; width {
			case 2:
				n = uint64(binary.LittleEndian.Uint16(b))
			case 4:
				n = uint64(binary.LittleEndian.Uint32(b))
			case 8:
				n = binary.LittleEndian.Uint64(b)
			}
			if !yield(i, n) {
				return
			}
		}
	}
}

// uint32s reads a typed array or a list of numbers, in which null stands for all bits set if orNull.
func uint32s(path string, v any, orNull bool) ([]uint32, error) {
	wide, err := numbers(path, v, 4, math.MaxUint32, orNull)
	narrow := make([]uint32, len(wide))
	for i, n := range wide {
		narrow[i] = uint32(n)
	}
	return narrow, err
}

func uint64s(path string, v any) ([]uint64, error) { return numbers(path, v, 8, math.MaxUint64, true) }

func numbers(path string, v any, width int, most uint64, orNull bool) ([]uint64, error) {
	ns := []uint64{}
	if raw, width, ok := typedArray(v, width); ok {
		for _, n := range elements(raw, width) {
			ns = append(ns, n)
		}
		return ns, nil
	}
	list, ok := v.([]any)
	if !ok {
		return nil, fault(path, "want a list of numbers or a typed array of %d bytes an element, got %s", width, kind(v))
	}
	for i, e := range list {
		n := most
		if e != nil || !orNull {
			var err error
			if n, err = uintOf(at(path, i), e, most); err != nil {
				return nil, err
			}
		}
		ns = append(ns, n)
	}
	return ns, nil
}

// EncodeConfig encodes a table of configuration as a TOML or JSON decoder gives it. Dates and times become text. An
// error names the key.
func EncodeConfig(table map[string]any) (pluginapi.Config, error) {
	plain, err := plainValue(table, "config")
	if err != nil {
		return nil, err
	}
	return pluginapi.NewConfig(plain.(map[string]any))
}

// ParseConfig encodes a configuration that is given as a JSON object. Whole numbers are integers, as in TOML.
func ParseConfig(data []byte) (pluginapi.Config, error) {
	tree, err := parseJSON(data)
	if err != nil {
		return nil, err
	}
	table, ok := tree.(map[string]any)
	if !ok {
		return nil, fmt.Errorf("a configuration is a JSON object, got %s", kind(tree))
	}
	return EncodeConfig(table)
}

func plainValue(v any, path string) (any, error) {
	switch v := v.(type) {
	case nil, bool, int, int64, uint64, float64, string:
		return v, nil
	case time.Time:
		return dateText(v), nil
	case []any:
		list := make([]any, len(v))
		for i, e := range v {
			var err error
			if list[i], err = plainValue(e, at(path, i)); err != nil {
				return nil, err
			}
		}
		return list, nil
	case []map[string]any: // an array of tables in TOML
		list := make([]any, len(v))
		for i, e := range v {
			var err error
			if list[i], err = plainValue(e, at(path, i)); err != nil {
				return nil, err
			}
		}
		return list, nil
	case map[string]any:
		table := make(map[string]any, len(v))
		for key, e := range v {
			var err error
			if table[key], err = plainValue(e, child(path, key)); err != nil {
				return nil, err
			}
		}
		return table, nil
	}
	return nil, fault(path, "configuration cannot hold %s", kind(v))
}

// dateText writes a date as TOML does. BurntSushi/toml marks local dates and times by the name of their location.
func dateText(t time.Time) string {
	switch t.Location().String() {
	case "datetime-local":
		return t.Format("2006-01-02T15:04:05.999999999")
	case "date-local":
		return t.Format("2006-01-02")
	case "time-local":
		return t.Format("15:04:05.999999999")
	}
	return t.Format(time.RFC3339Nano)
}

// nearest returns the known word at the smallest edit distance, "" if none is near.
func nearest(word string, known []string) string {
	best, least := "", max(2, len(word)/3)+1
	for _, k := range known {
		if d := distance(word, k); d < least {
			best, least = k, d
		}
	}
	return best
}

func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := 1; i <= len(a); i++ {
		diagonal := row[0]
		row[0] = i
		for j := 1; j <= len(b); j++ {
			cost := diagonal
			if a[i-1] != b[j-1] {
				cost++
			}
			diagonal = row[j]
			row[j] = min(cost, row[j]+1, row[j-1]+1)
		}
	}
	return row[len(b)]
}
