package pluginapi

// AppendHomes appends the output of an allocate.
func AppendHomes(dst []byte, h *Homes) []byte {
	n := uint64(1)
	if h.Reason != "" {
		n++
	}
	if len(h.Reasons) > 0 {
		n++
	}
	dst = appendHead(dst, majorMap, n)
	dst = appendHead(appendText(dst, "homes"), majorArray, uint64(len(h.Nodes)))
	for _, node := range h.Nodes {
		dst = appendTarget(dst, node)
	}
	if h.Reason != "" {
		dst = appendText(appendText(dst, "reason"), h.Reason)
	}
	if len(h.Reasons) > 0 {
		dst = appendHead(appendText(dst, "reasons"), majorArray, uint64(len(h.Reasons)))
		for _, reason := range h.Reasons {
			if reason == "" {
				dst = append(dst, simpleNull)
				continue
			}
			dst = appendText(dst, reason)
		}
	}
	return dst
}

// AppendPlan appends the output of a rebalance.
func AppendPlan(dst []byte, p *Plan) []byte {
	n := uint64(1)
	if p.Reason != "" {
		n++
	}
	dst = appendHead(dst, majorMap, n)
	dst = appendHead(appendText(dst, "moves"), majorArray, uint64(len(p.Moves)))
	for i := range p.Moves {
		m := &p.Moves[i]
		n := uint64(2)
		if m.Reason != "" {
			n++
		}
		dst = appendUint(appendHead(dst, majorArray, n), uint64(m.Shard))
		dst = appendTarget(dst, m.Target)
		if m.Reason != "" {
			dst = appendText(dst, m.Reason)
		}
	}
	if p.Reason != "" {
		dst = appendText(appendText(dst, "reason"), p.Reason)
	}
	return dst
}

// AppendFailure appends the output of a strategy that could not decide.
func AppendFailure(dst []byte, message string) []byte {
	return appendText(appendText(appendHead(dst, majorMap, 1), "error"), message)
}

// AppendConfigured appends the output of a configure that took its configuration.
func AppendConfigured(dst []byte) []byte { return appendHead(dst, majorMap, 0) }

// AppendDescription appends the output of a describe. The error is an *EncodeError for a default of a kind that
// configuration cannot hold, or for a key that comes twice.
func AppendDescription(dst []byte, d *Description) ([]byte, error) {
	n := uint64(2)
	if d.Summary != "" {
		n++
	}
	if len(d.Config) > 0 {
		n++
	}
	dst = appendHead(dst, majorMap, n)
	dst = appendText(appendText(dst, "name"), d.Name)
	if len(d.Config) > 0 {
		byKey := make(map[string]*ConfigKey, len(d.Config))
		keys := make([]string, len(d.Config))
		for i := range d.Config {
			keys[i] = d.Config[i].Key
			byKey[keys[i]] = &d.Config[i]
		}
		if len(byKey) < len(keys) {
			return nil, &EncodeError{Path: "config", Message: "a key comes twice"}
		}
		sortKeys(keys)
		dst = appendHead(appendText(dst, "config"), majorMap, uint64(len(keys)))
		for _, key := range keys {
			var err error
			if dst, err = byKey[key].append(appendText(dst, key)); err != nil {
				return nil, atKey(atKey(err, key), "config")
			}
		}
	}
	if d.Summary != "" {
		dst = appendText(appendText(dst, "summary"), d.Summary)
	}
	return appendText(appendText(dst, "version"), d.Version), nil
}

func (k *ConfigKey) append(dst []byte) (out []byte, err error) {
	n := uint64(1)
	if k.Help != "" {
		n++
	}
	if k.Default != nil {
		n++
	}
	dst = appendHead(dst, majorMap, n)
	if k.Help != "" {
		dst = appendText(appendText(dst, "help"), k.Help)
	}
	dst = appendText(appendText(dst, "type"), k.Type)
	if k.Default != nil {
		if dst, err = appendValue(appendText(dst, "default"), k.Default); err != nil {
			return nil, atKey(err, "default")
		}
	}
	return dst, nil
}
