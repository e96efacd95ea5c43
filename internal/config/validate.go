package config

import (
	"encoding/base64"
	"fmt"
	"net"
	"net/netip"
	"regexp"
	"slices"
	"sort"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/droverhq/drover/internal/tomldoc"
)

// finding is something wrong with the value at a path ("type[0].fuel").
type finding struct {
	path    string
	message string
	notYet  bool
}

// Validate checks a configuration that was made in Go. Each error names key and value. entities are the names that a
// type's entity may have; nil leaves entities unchecked.
func (c *Config) Validate(entities []string) error {
	var errs Errors
	for _, f := range c.validate(entities) {
		errs = append(errs, &Error{Key: c.pretty(f.path), Message: f.message, NotYet: f.notYet})
	}
	return errs.orNil()
}

// checks collects findings.
type checks struct {
	c        *Config
	findings []finding
}

func (k *checks) add(path, format string, args ...any) {
	k.findings = append(k.findings, finding{path: path, message: fmt.Sprintf(format, args...)})
}

func (c *Config) validate(entities []string) []finding {
	k := &checks{c: c}
	k.table()
	k.top()
	k.addresses()
	k.security()
	k.leases()
	for i := range c.Types {
		k.sharded(i, entities)
	}
	return k.findings
}

// table checks what the key table says: bounds, enumerations, and what this version cannot do yet.
func (k *checks) table() {
	defaults := Default()
	defaults.Types, defaults.Routers = []Type{DefaultType()}, []Router{DefaultRouter()}
	for _, t := range tables {
		if !t.list {
			for _, key := range t.keys {
				k.key(key, strings.Trim(t.name+"."+key.name, "."), key.field(k.c, 0), key.field(defaults, 0))
			}
			continue
		}
		for i := range t.count(k.c) {
			path := tomldoc.Index(t.name, i)
			if t.notYet != "" {
				k.findings = append(k.findings, finding{path, "[[" + t.name + "]] is not available yet: " + t.notYet + "; take it out", true})
			}
			for _, key := range t.keys {
				k.key(key, path+"."+key.name, key.field(k.c, i), key.field(defaults, 0))
			}
		}
	}
}

func (k *checks) key(key key, path string, field, standard any) {
	if n, ok := number(field); ok && key.max != 0 && (n < key.min || n > key.max) {
		k.add(path, "%s is out of range (want %s)", formatField(field), bounds(field, key.min, key.max))
		return
	}
	if s, ok := text(field); ok && key.oneOf != nil && !slices.Contains(key.oneOf, s) {
		k.add(path, "%s is none of %s%s", tomldoc.QuoteText(s), strings.Join(key.oneOf, ", "), tomldoc.DidYouMean(s, key.oneOf))
		return
	}
	if have, want := formatField(field), formatField(standard); key.notYet != "" && have != want {
		k.findings = append(k.findings, finding{path, fmt.Sprintf("%s is not available yet: %s; leave it at %s", have, key.notYet, want), true})
	}
}

// bounds writes a range in the field's own unit.
func bounds(field any, low, high int64) string {
	format := tomldoc.FormatInt
	switch field.(type) {
	case *time.Duration:
		format = func(n int64) string { return formatDuration(time.Duration(n)) }
	case *Bytes:
		format = func(n int64) string { return Bytes(n).String() }
	case *Rate:
		format = func(n int64) string { return Rate(n).String() }
	}
	return format(low) + " to " + format(high)
}

// nameProblem says why a text is no name: letters, digits, '-' and '_' (and '.' if dots), a letter or digit first.
func nameProblem(s string, most int, dots bool) string {
	allowed := "letters, digits, '-' and '_'"
	if dots {
		allowed = "letters, digits, '.', '-' and '_'"
	}
	if s == "" {
		return "must not be empty"
	}
	if len(s) > most {
		return fmt.Sprintf("%s is %d bytes long (at most %d)", tomldoc.QuoteText(printable(s)), len(s), most)
	}
	for i, r := range s {
		word := r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9'
		switch {
		case word, i > 0 && (r == '-' || r == '_'), i > 0 && dots && r == '.':
		case i == 0 && (tomldoc.IsBare(r) || r == '.'):
			return fmt.Sprintf("%s must begin with a letter or digit", tomldoc.QuoteText(s))
		default:
			return fmt.Sprintf("%s holds %q (want %s)", tomldoc.QuoteText(s), r, allowed)
		}
	}
	return ""
}

// labelProblem says why a text is no label for people: one line, not too long.
func labelProblem(s string, most int) string {
	if len(s) > most {
		return fmt.Sprintf("%d bytes long (at most %d)", len(s), most)
	}
	if !utf8.ValidString(s) || strings.ContainsFunc(s, unicode.IsControl) {
		return tomldoc.QuoteText(s) + " holds control characters"
	}
	return ""
}

func (k *checks) top() {
	c := k.c
	if message := labelProblem(c.Cluster, 128); c.Cluster == "" || message != "" {
		k.add("cluster", "%s", orElse(message, "must not be empty"))
	}
	if message := nameProblem(c.Name, 128, true); message != "" {
		k.add("name", "%s", message)
	}
	if message := labelProblem(c.Zone, 128); message != "" {
		k.add("zone", "%s", message)
	}
	if c.DataDir == "" || strings.ContainsRune(c.DataDir, 0) {
		k.add("data_dir", "must name a directory")
	}
	for i, role := range c.Roles {
		if message := nameProblem(role, 64, false); message != "" {
			k.add(tomldoc.Index("roles", i), "%s", message)
		} else if slices.Index(c.Roles, role) < i {
			k.add(tomldoc.Index("roles", i), "%s is there twice", tomldoc.QuoteText(role))
		}
	}
	for _, tag := range sortedKeys(c.Tags) {
		if message := nameProblem(tag, 64, true); message != "" {
			k.add(tomldoc.Join("tags", tag), "the name of a tag: %s", message)
		}
		if message := labelProblem(c.Tags[tag], TagLimit); message != "" {
			k.add(tomldoc.Join("tags", tag), "%s", message)
		}
	}
	if message := c.tagProblem(); message != "" {
		k.add("tags", "%s", message)
	}
}

// address is a parsed host and port.
type address struct {
	host     string
	port     int
	loopback bool
	all      bool // 0.0.0.0 or [::]
}

// parseBind reads an address to listen on.
func parseBind(s string) (address, string) {
	a, message := parseAddress(s)
	if message != "" {
		return a, message
	}
	if a.host == "" {
		return a, tomldoc.QuoteText(s) + " names no address to listen on (127.0.0.1 for this host alone, 0.0.0.0 for all)"
	}
	if _, err := netip.ParseAddr(a.host); err != nil && a.host != "localhost" {
		return a, tomldoc.QuoteText(s) + " is a name (want an IP address or localhost, and a port)"
	}
	return a, ""
}

// parsePeer reads an address to be reached at.
func parsePeer(s string) (address, string) {
	a, message := parseAddress(s)
	switch {
	case message != "":
		return a, message
	case a.host == "" || a.all:
		return a, tomldoc.QuoteText(s) + " is no address that others can reach"
	case a.port == 0:
		return a, tomldoc.QuoteText(s) + " has port 0 (want 1 to 65535)"
	}
	return a, ""
}

var hostName = regexp.MustCompile(`^[A-Za-z0-9_]([A-Za-z0-9_.-]*[A-Za-z0-9_.])?$`)

func parseAddress(s string) (address, string) {
	host, port, err := net.SplitHostPort(s)
	if err != nil {
		return address{}, tomldoc.QuoteText(s) + ` is not host:port (such as "127.0.0.1:7946" or "[::1]:7946")`
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil {
		return address{}, fmt.Sprintf("%s has port %s (want 0 to 65535)", tomldoc.QuoteText(s), tomldoc.QuoteText(port))
	}
	a := address{host: host, port: int(n), loopback: host == "localhost"}
	ip, err := netip.ParseAddr(host)
	switch {
	case err == nil:
		a.loopback, a.all = ip.Unmap().IsLoopback(), ip.Unmap().IsUnspecified()
	case host != "" && (!hostName.MatchString(host) || len(host) > 253):
		return address{}, tomldoc.QuoteText(s) + " has no valid host"
	}
	return a, ""
}

func (k *checks) addresses() {
	c := k.c
	listeners := []struct {
		path, bind, advertisePath, advertise string
		needIP                               bool
	}{
		{"gossip.bind", c.Gossip.Bind, "gossip.advertise", c.Gossip.Advertise, true},
		{"transport.bind", c.Transport.Bind, "transport.advertise", c.Transport.Advertise, false},
		{"http.address", c.HTTP.Address, "", "", false},
	}
	taken := map[int]int{} // port → listener
	for i, l := range listeners {
		a, message := parseBind(l.bind)
		if message != "" {
			k.add(l.path, "%s", message)
			continue
		}
		if other, ok := taken[a.port]; ok && a.port != 0 {
			b, _ := parseBind(listeners[other].bind)
			if a.host == b.host || a.all || b.all {
				k.add(l.path, "%s has the port of %s = %s: each needs its own", tomldoc.QuoteText(l.bind), listeners[other].path, tomldoc.QuoteText(listeners[other].bind))
			}
		} else {
			taken[a.port] = i
		}
		if l.advertisePath == "" {
			continue
		}
		if l.advertise == "" {
			if a.all {
				k.add(l.path, "%s is no address that others can reach: name the one that they use", tomldoc.QuoteText(l.bind))
			}
			continue
		}
		peer, message := parsePeer(l.advertise)
		if message == "" && l.needIP {
			if _, err := netip.ParseAddr(peer.host); err != nil {
				message = tomldoc.QuoteText(l.advertise) + " is a name (gossip needs an IP address)"
			}
		}
		if message != "" {
			k.add(l.advertisePath, "%s", message)
		}
	}
	for i, join := range c.Gossip.Join {
		if _, message := parsePeer(join); message != "" {
			k.add(tomldoc.Index("gossip.join", i), "%s", message)
		}
	}
}

// security checks keys, tokens and the loopback rule (spec 5.2).
func (k *checks) security() {
	c := k.c
	for i, key := range c.Gossip.Keys {
		path := tomldoc.Index("gossip.keys", i)
		raw, err := base64.StdEncoding.DecodeString(key.Reveal())
		switch {
		case err != nil:
			k.add(path, "key %d is not base64", i+1)
		case len(raw) != 16 && len(raw) != 24 && len(raw) != 32:
			k.add(path, "key %d is %d bytes long (want 16, 24 or 32)", i+1, len(raw))
		case slices.Index(c.Gossip.Keys, key) < i:
			k.add(path, "key %d is there twice", i+1)
		}
	}
	for _, t := range []struct {
		path  string
		token Secret
	}{{"http.tokens.admin", c.HTTP.AdminToken}, {"http.tokens.read", c.HTTP.ReadToken}} {
		if s := t.token.Reveal(); s != "" && (len(s) < 16 || strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r > '~' })) {
			k.add(t.path, "want at least 16 characters of printable ASCII without spaces, or nothing")
		}
	}
	if c.HTTP.AdminToken != "" && c.HTTP.AdminToken == c.HTTP.ReadToken {
		k.add("http.tokens.read", "is the same as http.tokens.admin: whoever may look could do everything")
	}
	files := map[string]string{"tls.ca": c.TLS.CA, "tls.cert": c.TLS.Cert, "tls.key": c.TLS.Key}
	if set := len(files) - count(files, ""); set != 0 && set != len(files) {
		for _, path := range sortedKeys(files) {
			if files[path] == "" {
				k.add(path, "not set, and others of [tls] are: set ca, cert and key, or none")
			}
		}
	}
	if !c.TLS.Enabled() && !c.Transport.InsecureBind {
		for _, l := range []struct{ path, bind string }{{"gossip.bind", c.Gossip.Bind}, {"transport.bind", c.Transport.Bind}} {
			if a, message := parseBind(l.bind); message == "" && !a.loopback {
				k.add(l.path, "%s is not loopback and [tls] is not set: set tls.ca, tls.cert and tls.key, or transport.insecure_bind = true to do without", tomldoc.QuoteText(l.bind))
			}
		}
	}
	if c.HTTP.AdminToken == "" && c.HTTP.ReadToken == "" && !c.HTTP.InsecureBind {
		if a, message := parseBind(c.HTTP.Address); message == "" && !a.loopback {
			k.add("http.address", "%s is not loopback and no token is set: set http.tokens.admin, or http.insecure_bind = true to do without", tomldoc.QuoteText(c.HTTP.Address))
		}
	}
}

// leases checks the times that depend on each other (spec 2.1).
func (k *checks) leases() {
	c := k.c
	if ttl, beat := c.Sharding.LeaseTTL, c.Raft.HeartbeatTimeout; ttl <= beat {
		k.add("sharding.lease_ttl", "%s must be longer than raft.heartbeat_timeout = %s: leases would lapse before a new leader can be elected",
			tomldoc.QuoteText(formatDuration(ttl)), tomldoc.QuoteText(formatDuration(beat)))
	}
}

var digest = regexp.MustCompile(`^sha256:[0-9a-f]{64}$`)

func (k *checks) sharded(i int, entities []string) {
	t := &k.c.Types[i]
	path := tomldoc.Index("type", i)
	if message := nameProblem(t.Name, 64, false); message != "" {
		k.add(path+".name", "%s", message)
	} else if j := slices.IndexFunc(k.c.Types, func(o Type) bool { return envName([]string{o.Name}) == envName([]string{t.Name}) }); j < i {
		k.add(path+".name", "%s is taken by another [[type]]: %s (capitals, '-' and '_' do not tell names apart)", tomldoc.QuoteText(t.Name), tomldoc.QuoteText(k.c.Types[j].Name))
	}
	if entities != nil {
		switch {
		case slices.Contains(entities, t.Entity):
		case t.Entity == "":
			k.add(path+".entity", "not set (one of %s)", strings.Join(entities, ", "))
		case slices.Contains(laterEntities, t.Entity):
			k.findings = append(k.findings, finding{path + ".entity", tomldoc.QuoteText(t.Entity) + " is not available yet; there is " + strings.Join(entities, ", "), true})
		default:
			k.add(path+".entity", "%s runs only if your own program hosts it; this one has %s%s", tomldoc.QuoteText(t.Entity), strings.Join(entities, ", "), tomldoc.DidYouMean(t.Entity, entities))
		}
	}
	if message := strategyProblem(t.Strategy); message != "" {
		k.add(path+".strategy", "%s", message)
	}
	if t.Memory%(64*KiB) != 0 {
		k.add(path+".memory", "%s is no multiple of 64KiB", tomldoc.QuoteText(t.Memory.String()))
	}
	if t.Role != "" {
		if message := nameProblem(t.Role, 64, false); message != "" {
			k.add(path+".role", "%s", message)
		}
	}
	if depth(t.Config) > maxConfigDepth {
		k.add(path+".config", "nested more than %d deep", maxConfigDepth)
	}
}

// maxConfigDepth keeps [type.config] inside what CBOR decoders on the way to the strategy accept.
const maxConfigDepth = 16

func depth(v any) int {
	deepest := 0
	switch v := v.(type) {
	case map[string]any:
		for _, e := range v {
			deepest = max(deepest, depth(e))
		}
	case []any:
		for _, e := range v {
			deepest = max(deepest, depth(e))
		}
	default:
		return 0
	}
	return deepest + 1
}

func strategyProblem(s string) string {
	if name, ok := strings.CutPrefix(s, "builtin:"); ok {
		if slices.Contains(Builtins, name) {
			return ""
		}
		return fmt.Sprintf("%s is no built-in strategy; there is builtin:%s%s", tomldoc.QuoteText(s), strings.Join(Builtins, ", builtin:"), tomldoc.DidYouMean(name, Builtins))
	}
	if strings.HasPrefix(s, "sha256:") {
		if digest.MatchString(s) {
			return ""
		}
		return tomldoc.QuoteText(s) + " is no digest (want sha256: and 64 hexadecimal digits in lower case)"
	}
	switch {
	case s == "":
		return `not set (want "builtin:leastshard", the path of a .wasm, or "sha256:…")`
	case slices.Contains(Builtins, s):
		return fmt.Sprintf("%s is read as a path (did you mean %q?)", tomldoc.QuoteText(s), "builtin:"+s)
	case strings.ContainsRune(s, 0):
		return tomldoc.QuoteText(s) + " is no path"
	case !strings.HasSuffix(s, ".wasm"):
		return tomldoc.QuoteText(s) + ` is no path of a .wasm (want that, "builtin:leastshard" or "sha256:…")`
	}
	return ""
}

// oddities are legal and worth a word.
func (c *Config) oddities() []string {
	var out []string
	open := false
	for _, bind := range []string{c.Gossip.Bind, c.Transport.Bind} {
		a, message := parseBind(bind)
		open = open || message == "" && !a.loopback
	}
	if open && len(c.Gossip.Keys) == 0 {
		out = append(out, "gossip leaves this host and gossip.keys is empty: anybody who reaches "+c.Gossip.Bind+" can read and forge membership")
	}
	if open && !c.TLS.Enabled() {
		out = append(out, "transport.insecure_bind is true and [tls] is not set: anybody on the way can read messages between nodes")
	}
	if a, message := parseBind(c.HTTP.Address); message == "" && !a.loopback && c.HTTP.AdminToken == "" && c.HTTP.ReadToken == "" {
		out = append(out, "http.insecure_bind is true and no token is set: anybody who reaches "+c.HTTP.Address+" can do anything")
	}
	if c.Sharding.LeaseTTL < 3*c.Raft.HeartbeatTimeout {
		out = append(out, "sharding.lease_ttl is less than three times raft.heartbeat_timeout: every election may suspend shards")
	}
	return out
}

func orElse(s, other string) string {
	if s == "" {
		return other
	}
	return s
}

func count(m map[string]string, value string) int {
	n := 0
	for _, v := range m {
		if v == value {
			n++
		}
	}
	return n
}

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	sort.Strings(keys)
	return keys
}
