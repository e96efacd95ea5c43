package pluginapi

import "unsafe"

// Keys of a node as they are encoded, head included, read as one little-endian word; those of more than 7 bytes have their
// first 7 here.
const (
	wordAddr        = 'a'<<8 | 'd'<<16 | 'd'<<24 | 'r'<<32 | majorText | 4
	wordName        = 'n'<<8 | 'a'<<16 | 'm'<<24 | 'e'<<32 | majorText | 4
	wordZone        = 'z'<<8 | 'o'<<16 | 'n'<<24 | 'e'<<32 | majorText | 4
	wordTags        = 't'<<8 | 'a'<<16 | 'g'<<24 | 's'<<32 | majorText | 4
	wordLoad        = 'l'<<8 | 'o'<<16 | 'a'<<24 | 'd'<<32 | majorText | 4
	wordCoord       = 'c'<<8 | 'o'<<16 | 'o'<<24 | 'r'<<32 | 'd'<<40 | majorText | 5
	wordRoles       = 'r'<<8 | 'o'<<16 | 'l'<<24 | 'e'<<32 | 's'<<40 | majorText | 5
	wordState       = 's'<<8 | 't'<<16 | 'a'<<24 | 't'<<32 | 'e'<<40 | majorText | 5
	wordWeight      = 'w'<<8 | 'e'<<16 | 'i'<<24 | 'g'<<32 | 'h'<<40 | 't'<<48 | majorText | 6
	wordVersion     = 'v'<<8 | 'e'<<16 | 'r'<<24 | 's'<<32 | 'i'<<40 | 'o'<<48 | 'n'<<56 | majorText | 7
	wordIncarnation = 'i'<<8 | 'n'<<16 | 'c'<<24 | 'a'<<32 | 'r'<<40 | 'n'<<48 | 'a'<<56 | majorText | 11
	wordTion        = 't' | 'i'<<8 | 'o'<<16 | 'n'<<24
)

// quickNode reads a node that is as hosts of this version write it. Where anything is otherwise, be it wrong or new, it
// returns false, and node reads it again. A cluster of many nodes would else cost a guest more than many thousand shards:
// strings are compared byte by byte there.
func (d *inputDecoder) quickNode(n *Node) bool {
	const longest = 12 // bytes of a key, head included
	b := d.peek()
	keys := int(b - majorMap)
	if b < majorMap || keys > 11 {
		return false
	}
	d.pos++
	got := uint(0) // bits, those of requiredOfNode first
	for range keys {
		if len(d.data)-d.pos < longest+1 {
			return false
		}
		at := unsafe.Pointer(unsafe.SliceData(d.data[d.pos:]))
		word := getLE64((*[8]byte)(at)[:])
		size := int(word&0xff) - majorText + 1
		if size < 8 {
			word &= 1<<(uint(size)*8&63) - 1
		}
		d.pos += size
		bit, ok := uint(0), true
		switch word {
		case wordAddr:
			bit = 1 << 1
			n.Addr, ok = d.quickText()
		case wordName:
			bit = 1 << 0
			n.Name, ok = d.quickText()
		case wordIncarnation:
			bit = 1 << 2
			if getLE32((*[4]byte)(unsafe.Add(at, 8))[:]) != wordTion {
				return false
			}
			n.Incarnation, ok = d.quickText()
		case wordState:
			bit = 1 << 3
			if d.data[d.pos] == majorText|2 && d.data[d.pos+1] == 'u' && d.data[d.pos+2] == 'p' {
				n.State = StateUp
				d.pos += 3
			} else {
				var state string
				state, ok = d.quickText()
				n.State, _ = ParseNodeState(state)
			}
		case wordRoles:
			bit = 1 << 4
			ok = d.quickRoles(n)
		case wordVersion:
			bit = 1 << 5
			n.Version, ok = d.quickText()
		case wordWeight:
			bit = 1 << 6
			var err error
			n.Weight, err = d.uint()
			ok = err == nil
		case wordZone:
			bit = 1 << 7
			n.Zone, ok = d.quickText()
		case wordTags:
			bit = 1 << 8
			ok = d.tags(n) == nil
		case wordCoord:
			bit = 1 << 9
			ok = d.coord(n) == nil
		case wordLoad:
			bit = 1 << 10
			ok = d.nodeLoad(&n.Load) == nil
		}
		if !ok || bit == 0 || got&bit != 0 {
			return false
		}
		got |= bit
	}
	const required = 1<<len(requiredOfNode) - 1
	return got&required == required
}

func (d *inputDecoder) quickRoles(n *Node) bool {
	b := d.peek()
	if b < majorArray || b > majorArray+8 {
		return false
	}
	d.pos++
	if b == majorArray {
		return true
	}
	n.Roles = make([]string, b-majorArray)
	for i := range n.Roles {
		var ok bool
		if n.Roles[i], ok = d.quickText(); !ok {
			return false
		}
	}
	return true
}

// quickText reads a short text of ASCII; it returns false for any other.
func (d *inputDecoder) quickText() (string, bool) {
	data, pos := d.data, d.pos
	if len(data)-pos < 2 {
		return "", false
	}
	n := int(data[pos]) - majorText
	pos++
	if n == 24 {
		n = int(data[pos])
		pos++
	} else if uint(n) > 23 {
		return "", false
	}
	if len(data)-pos < n+8 {
		return "", false // the words below would end behind the input
	}
	from := unsafe.Pointer(unsafe.SliceData(data[pos:]))
	var high uint64
	for i := 0; i < n; i += 8 {
		word := getLE64((*[8]byte)(unsafe.Add(from, i))[:])
		if n-i < 8 {
			word &= 1<<(uint(n-i)*8&63) - 1
		}
		high |= word
	}
	if high&0x8080808080808080 != 0 {
		return "", false
	}
	d.pos = pos + n
	if n == 0 {
		return "", true
	}
	text := unsafe.String((*byte)(from), n)
	if !d.alias {
		text = clone(text)
	}
	return text, true
}
