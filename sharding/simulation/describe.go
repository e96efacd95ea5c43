package simulation

import (
	"fmt"
	"reflect"
	"strings"

	"github.com/droverhq/drover/sharding/protocol"
)

// describe turns a value into text that is the same in every run: pointers are followed, zero fields left out.
func describe(v any) any {
	switch v := v.(type) {
	case nil, string, int, int64, uint64, float64, bool, error:
		return v
	case protocol.Kind, protocol.ShardState, Disturbance:
		return v
	}
	var b strings.Builder
	write(&b, reflect.ValueOf(v), 0)
	return b.String()
}

func write(b *strings.Builder, v reflect.Value, depth int) {
	if depth > 8 || !v.IsValid() {
		b.WriteString("…")
		return
	}
	if v.Kind() != reflect.Pointer && v.Kind() != reflect.Interface && v.CanInterface() {
		if s, ok := v.Interface().(fmt.Stringer); ok {
			b.WriteString(s.String())
			return
		}
	}
	switch v.Kind() {
	case reflect.Pointer, reflect.Interface:
		if v.IsNil() {
			b.WriteString("nil")
			return
		}
		write(b, v.Elem(), depth+1)
	case reflect.Struct:
		name := v.Type().Name()
		b.WriteString(name + "{")
		sep := ""
		for i := range v.NumField() {
			if !v.Type().Field(i).IsExported() || v.Field(i).IsZero() {
				continue
			}
			b.WriteString(sep + v.Type().Field(i).Name + ":")
			write(b, v.Field(i), depth+1)
			sep = " "
		}
		b.WriteString("}")
	case reflect.Slice, reflect.Array:
		if v.Type().Elem().Kind() == reflect.Uint8 {
			fmt.Fprintf(b, "%x", v.Interface())
			return
		}
		b.WriteString("[")
		for i := range v.Len() {
			if i > 0 {
				b.WriteString(" ")
			}
			if i == 24 {
				fmt.Fprintf(b, "… %d in all", v.Len())
				break
			}
			write(b, v.Index(i), depth+1)
		}
		b.WriteString("]")
	default:
		fmt.Fprintf(b, "%v", v)
	}
}
