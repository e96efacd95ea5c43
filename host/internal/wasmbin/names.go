package wasmbin

// The subsections of the name section that are kept.
const (
	subModule = 0
	subFuncs  = 1
)

// decodeNames decodes a name section's content and tells whether it is well
// formed, as far as it is kept.
func decodeNames(content []byte) (*Names, bool) {
	r := &reader{buf: content, end: len(content)}
	n := &Names{}
	last := -1
	for r.err == nil && r.pos < r.end {
		id := r.byte()
		size := r.u32()
		if int(id) <= last || uint64(size) > uint64(r.left()) {
			return nil, false
		}
		last = int(id)
		s := &reader{buf: content, pos: r.pos, end: r.pos + int(size)}
		r.pos = s.end
		switch id {
		case subModule:
			n.Module, n.HasModule = s.name(), true
		case subFuncs:
			count := s.count(2)
			n.Funcs = makeVec[NameAssoc](count)
			for i := 0; i < count && s.err == nil; i++ {
				a := NameAssoc{Index: s.u32(), Name: s.name()}
				if i > 0 && s.err == nil && a.Index <= n.Funcs[i-1].Index {
					return nil, false
				}
				n.Funcs = append(n.Funcs, a)
			}
		default:
			s.pos = s.end
		}
		if s.err != nil || s.pos != s.end {
			return nil, false
		}
	}
	return n, r.err == nil
}

func appendNames(dst []byte, n *Names) []byte {
	if n.HasModule {
		dst = append(dst, subModule)
		dst = appendSized(dst, func(b []byte) []byte { return appendName(b, n.Module) })
	}
	if len(n.Funcs) > 0 {
		dst = append(dst, subFuncs)
		dst = appendSized(dst, func(b []byte) []byte {
			b = AppendU32(b, uint32(len(n.Funcs)))
			for _, a := range n.Funcs {
				b = AppendU32(b, a.Index)
				b = appendName(b, a.Name)
			}
			return b
		})
	}
	return dst
}
