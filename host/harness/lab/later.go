package lab

import (
	"fmt"
	"slices"

	"github.com/fxamacker/cbor/v2"
)

// laterInput writes an input as a later version of the contract may: the maps of the input, of its nodes and of its limits
// have a key more, which comes first, and the others in reverse order.
func laterInput(input []byte) ([]byte, error) {
	var root map[string]cbor.RawMessage
	if err := cbor.Unmarshal(input, &root); err != nil {
		return nil, fmt.Errorf("input: %w", err)
	}
	var nodes []map[string]cbor.RawMessage
	if err := cbor.Unmarshal(root["nodes"], &nodes); err != nil {
		return nil, fmt.Errorf("input: nodes: %w", err)
	}
	list := head(4, len(nodes))
	for _, n := range nodes {
		list = append(list, laterMap(n)...)
	}
	root["nodes"] = list
	var limits map[string]cbor.RawMessage
	if err := cbor.Unmarshal(root["limits"], &limits); err != nil {
		return nil, fmt.Errorf("input: limits: %w", err)
	}
	root["limits"] = laterMap(limits)
	return laterMap(root), nil
}

// news is a key that no version knows, and a value that nests: ["x", {"y": 1.5}].
var news = []byte("\x69not-known\x82\x61x\xa1\x61y\xf9\x3e\x00")

func laterMap(m map[string]cbor.RawMessage) []byte {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	slices.Reverse(keys)
	out := append(head(5, len(m)+1), news...)
	for _, k := range keys {
		out = append(head0(out, 3, len(k)), k...)
		out = append(out, m[k]...)
	}
	return out
}

// head is the head of a value of a major type with so many elements or bytes.
func head(major byte, n int) []byte { return head0(nil, major, n) }

func head0(dst []byte, major byte, n int) []byte {
	switch major <<= 5; {
	case n < 24:
		return append(dst, major|byte(n))
	case n < 1<<8:
		return append(dst, major|24, byte(n))
	default:
		return append(dst, major|26, byte(n>>24), byte(n>>16), byte(n>>8), byte(n))
	}
}
