package config

import (
	"encoding/base64"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/droverhq/drover/internal/tomldoc"
)

const oneType = "[[type]]\nname = \"counter\"\nentity = \"counter\"\n"

// TestBadFiles holds the messages for wrong files: line, column, key, value, and what was probably meant (spec 5.1).
func TestBadFiles(t *testing.T) {
	long := strings.Repeat("x", 129)
	for _, tc := range []struct{ name, doc, want string }{
		// Unknown keys.
		{"mistyped key", "shutdwon_timeout = \"1s\"\n", `node.toml:1:1: shutdwon_timeout: unknown key (did you mean "shutdown_timeout"?)`},
		{"mistyped table", "\n  [gosip]\nbind = \"x\"\n", `node.toml:2:3: gosip: unknown key (did you mean "gossip"?)`},
		{"mistyped key in a table", "[gossip]\nkey = []\n", `node.toml:2:1: gossip.key: unknown key (did you mean "gossip.keys"?)`},
		{"swapped letters in a type", oneType + "shadrs = 1\n", `node.toml:4:1: type.counter.shadrs: unknown key (did you mean "type.counter.shards"?)`},
		{"key of another table", "lease_ttl = \"1s\"\n", `node.toml:1:1: lease_ttl: unknown key here (there is one in [sharding])`},
		{"key of several tables", "bind = \"x\"\n", `node.toml:1:1: bind: unknown key here (there is one in [gossip], [transport])`},
		{"nothing near", "frobnicate = 1\n", `node.toml:1:1: frobnicate: unknown key`},
		{"inline table", "http = { address = \"127.0.0.1:1\", tokens = { amdin = \"\" } }\n", `node.toml:1:46: http.tokens.amdin: unknown key (did you mean "http.tokens.admin"?)`},
		{"quoted key", "\"odd key\" = 1\n", `node.toml:1:1: "odd key": unknown key`},
		{"column counts characters", "http = { \"é\" = 1, \"ü\" = 2 }\n", "node.toml:1:10: http.\"é\": unknown key\nnode.toml:1:19: http.\"ü\": unknown key"},

		// Wrong types.
		{"number for text", "zone = 3\n", `node.toml:1:8: zone: want a text in quotes, got a whole number, 3`},
		{"number for duration", "shutdown_timeout = 30\n", `node.toml:1:20: shutdown_timeout: want a duration such as "2s", got a whole number, 30`},
		{"text for number", "capacity = \"100\"\n", `node.toml:1:12: capacity: want a whole number, got a text, "100"`},
		{"float for number", "capacity = 1.5\n", `node.toml:1:12: capacity: want a whole number, got a decimal number, 1.5`},
		{"text for truth", "[transport]\ninsecure_bind = \"true\"\n", `node.toml:2:17: transport.insecure_bind: want true or false, got a text, "true"`},
		{"text for list", "roles = \"compute\"\n", `node.toml:1:9: roles: want a list of texts, got a text, "compute"`},
		{"element of a list", "roles = [\n  \"a\", # one\n  2,\n]\n", `node.toml:3:3: roles[1]: want a text in quotes, got a whole number, 2`},
		{"value for table", "gossip = 3\n", `node.toml:1:10: gossip: want a table, [gossip], got a whole number`},
		{"table for list of tables", "[type]\nname = \"x\"\n", `node.toml:1:1: type: want a list of tables, [[type]], got a table`},
		{"list of no tables", "type = [1]\n", `node.toml:1:9: type[0]: want a table, [[type]], got a whole number, 1` + "\n" + `node.toml:1:9: type[0].entity: not set (one of counter)` + "\n" + `node.toml:1:9: type[0].name: must not be empty`},
		{"tag", "[tags]\nrack = 7\n", `node.toml:2:8: tags.rack: want a text in quotes, got a whole number, 7`},
		{"date", "zone = 1979-05-27\n", `node.toml:1:8: zone: want a text in quotes, got a date or time, "1979-05-27"`},
		{"secret of the wrong type is not shown", "[http]\ntokens = { admin = 1234567890123456 }\n", `node.toml:2:20: http.tokens.admin: want a text in quotes, got a whole number`},
		{"size", "[http]\nmax_body = \"1 megabyte\"\n", `node.toml:2:12: http.max_body: "1 megabyte" is not a size (want a whole number and a unit, such as "64MiB")`},
		{"size without unit", "[http]\nmax_body = 1024\n", `node.toml:2:12: http.max_body: want a size such as "64MiB", got a whole number, 1024`},
		{"negative duration", "[sharding]\nsettle = \"-1s\"\n", `node.toml:2:10: sharding.settle: "-1s" is not a duration (want a number and a unit: "2s", "100ms", "1m30s")`},

		// Syntax.
		{"syntax", "zone = \"a\"\ncluster = \n", `node.toml:2:11: not TOML: expected value but found '\n' instead`},
		{"twice", "zone = \"a\"\nzone = \"b\"\n", `node.toml:2:1: not TOML: Key 'zone' has already been defined.`},

		// Values out of range.
		{"range", "capacity = 0\n", `node.toml:1:12: capacity: 0 is out of range (want 1 to 1_000_000)`},
		{"duration range", "[sharding]\nrebalance_interval = \"1ms\"\n", `node.toml:2:22: sharding.rebalance_interval: "1ms" is out of range (want 100ms to 1h)`},
		{"memory over the cap", oneType + "memory = \"65MiB\"\n", `node.toml:4:10: type.counter.memory: "65MiB" is out of range (want 64KiB to 64MiB)`},
		{"memory in pages", oneType + "memory = \"100KiB\"\n", `node.toml:4:10: type.counter.memory: "100KiB" is no multiple of 64KiB`},
		{"no shards", oneType + "shards = 0\n", `node.toml:4:10: type.counter.shards: 0 is out of range (want 1 to 100_000)`},
		{"enumeration", oneType + "place = \"eagre\"\n", `node.toml:4:9: type.counter.place: "eagre" is none of on_demand, eager (did you mean "eager"?)`},
		{"log level", "[log]\nlevel = \"trace\"\n", `node.toml:2:9: log.level: "trace" is none of debug, info, warn, error`},
		{"lease shorter than an election", "[sharding]\nlease_ttl = \"400ms\"\n", `node.toml:2:13: sharding.lease_ttl: "400ms" must be longer than raft.heartbeat_timeout = "1s": leases would lapse before a new leader can be elected`},

		// Names.
		{"node name", "name = \"a/b\"\n", `node.toml:1:8: name: "a/b" holds '/' (want letters, digits, '.', '-' and '_')`},
		{"long name", "name = \"" + long + "\"\n", `node.toml:1:8: name: "` + long[:80] + `…" is 129 bytes long (at most 128)`},
		{"name of dots", "name = \"..\"\n", `node.toml:1:8: name: ".." must begin with a letter or digit`},
		{"empty cluster", "cluster = \"\"\n", `node.toml:1:11: cluster: must not be empty`},
		{"role", "roles = [\"a,b\"]\n", `node.toml:1:10: roles[0]: "a,b" holds ',' (want letters, digits, '-' and '_')`},
		{"role twice", "roles = [\"a\", \"a\"]\n", `node.toml:1:15: roles[1]: "a" is there twice`},
		{"type without a name", "[[type]]\nentity = \"counter\"\n", `node.toml:1:1: type[0].name: must not be empty`},
		{"type without an entity", "\n[[type]]\nname = \"a\"\n", `node.toml:2:1: type.a.entity: not set (one of counter)`},
		{"type twice", oneType + oneType, `node.toml:5:8: type.counter.name: "counter" is taken by another [[type]]: "counter" (capitals, '-' and '_' do not tell names apart)`},
		{"unknown entity", "[[type]]\nname = \"a\"\nentity = \"conter\"\n", `node.toml:3:10: type.a.entity: "conter" runs only if your own program hosts it; this one has counter (did you mean "counter"?)`},

		// Strategies.
		{"built-in strategy", oneType + "strategy = \"builtin:leastshards\"\n", `node.toml:4:12: type.counter.strategy: "builtin:leastshards" is no built-in strategy; there is builtin:hash, builtin:leastshard, builtin:rendezvous (did you mean "leastshard"?)`},
		{"built-in without its prefix", oneType + "strategy = \"hash\"\n", `node.toml:4:12: type.counter.strategy: "hash" is read as a path (did you mean "builtin:hash"?)`},
		{"digest", oneType + "strategy = \"sha256:abc\"\n", `node.toml:4:12: type.counter.strategy: "sha256:abc" is no digest (want sha256: and 64 hexadecimal digits in lower case)`},
		{"no wasm", oneType + "strategy = \"my.so\"\n", `node.toml:4:12: type.counter.strategy: "my.so" is no path of a .wasm (want that, "builtin:leastshard" or "sha256:…")`},
		{"no strategy", oneType + "strategy = \"\"\n", `node.toml:4:12: type.counter.strategy: not set (want "builtin:leastshard", the path of a .wasm, or "sha256:…")`},
		{"config too deep", oneType + "config = " + strings.Repeat("{a=", 17) + "1" + strings.Repeat("}", 17) + "\n", `node.toml:4:10: type.counter.config: nested more than 16 deep`},

		// Addresses and the loopback rule (spec 5.2).
		{"no port", "[gossip]\nbind = \"127.0.0.1\"\n", `node.toml:2:8: gossip.bind: "127.0.0.1" is not host:port (such as "127.0.0.1:7946" or "[::1]:7946")`},
		{"port too large", "[gossip]\nbind = \"127.0.0.1:79460\"\n", `node.toml:2:8: gossip.bind: "127.0.0.1:79460" has port "79460" (want 0 to 65535)`},
		{"no host", "[http]\naddress = \":8080\"\n", `node.toml:2:11: http.address: ":8080" names no address to listen on (127.0.0.1 for this host alone, 0.0.0.0 for all)`},
		{"name to listen on", "[http]\naddress = \"example.org:80\"\n", `node.toml:2:11: http.address: "example.org:80" is a name (want an IP address or localhost, and a port)`},
		{"ports clash", "[http]\naddress = \"127.0.0.1:7947\"\n", `node.toml:2:11: http.address: "127.0.0.1:7947" has the port of transport.bind = "127.0.0.1:7947": each needs its own`},
		{"not loopback", "[gossip]\nbind = \"10.0.0.1:7946\"\n", `node.toml:2:8: gossip.bind: "10.0.0.1:7946" is not loopback and [tls] is not set: set tls.ca, tls.cert and tls.key, or transport.insecure_bind = true to do without`},
		{"not loopback, transport", "[transport]\nbind = \"[2001:db8::1]:7947\"\n", `node.toml:2:8: transport.bind: "[2001:db8::1]:7947" is not loopback and [tls] is not set: set tls.ca, tls.cert and tls.key, or transport.insecure_bind = true to do without`},
		{"http without a token", "[http]\naddress = \"0.0.0.0:8080\"\n", `node.toml:2:11: http.address: "0.0.0.0:8080" is not loopback and no token is set: set http.tokens.admin, or http.insecure_bind = true to do without`},
		{"all addresses, none told", "[transport]\nbind = \"0.0.0.0:7947\"\ninsecure_bind = true\n", `node.toml:2:8: transport.bind: "0.0.0.0:7947" is no address that others can reach: name the one that they use`},
		{"advertise", "[transport]\nadvertise = \"0.0.0.0:1\"\n", `node.toml:2:13: transport.advertise: "0.0.0.0:1" is not available yet: ` + advertNot + `; leave it at ""` + "\n" + `node.toml:2:13: transport.advertise: "0.0.0.0:1" is no address that others can reach`},
		{"advertise a name", "[gossip]\nadvertise = \"example.org:1\"\n", `node.toml:2:13: gossip.advertise: "example.org:1" is not available yet: ` + advertNot + `; leave it at ""` + "\n" + `node.toml:2:13: gossip.advertise: "example.org:1" is a name (gossip needs an IP address)`},
		{"join", "[gossip]\njoin = [\"a.example:7946\", \"b c:1\", \"x:0\"]\n", "node.toml:2:27: gossip.join[1]: \"b c:1\" has no valid host\nnode.toml:2:36: gossip.join[2]: \"x:0\" has port 0 (want 1 to 65535)"},
		{"part of tls", "[tls]\nca = \"ca.pem\"\n", "node.toml: tls.cert: not set, and others of [tls] are: set ca, cert and key, or none\nnode.toml: tls.key: not set, and others of [tls] are: set ca, cert and key, or none"},

		// Secrets never show.
		{"key no base64", "[gossip]\nkeys = [\"hunter2!\"]\n", `node.toml:2:9: gossip.keys[0]: key 1 is not base64`},
		{"key length", "[gossip]\nkeys = [\"AAAA\"]\n", `node.toml:2:9: gossip.keys[0]: key 1 is 3 bytes long (want 16, 24 or 32)`},
		{"short token", "[http]\ntokens.read = \"hunter2\"\n", `node.toml:2:15: http.tokens.read: want at least 16 characters of printable ASCII without spaces, or nothing`},
		{"token in the place of the table", "[http]\ntokens = \"hunter2hunter2hunter2\"\n", `node.toml:2:10: http.tokens: want a table, [http.tokens], got a text`},
		{"token without quotes", "[http]\ntokens.admin = hunter2hunter2hunter2\n", `node.toml:2:16: not TOML, at or after http.tokens.admin: what stands there may be a secret and is not shown (texts need quotes)`},
		{"token of letters alone", "[http]\ntokens = { admin = hunter }\n", `node.toml:2:20: not TOML, at or after http.tokens.admin: what stands there may be a secret and is not shown (texts need quotes)`},
		{"token of digits", "[http]\ntokens.read = 0x12345678901234567890\n", `node.toml:2:15: not TOML, at or after http.tokens.read: what stands there may be a secret and is not shown (texts need quotes)`},
		{"mistyped key of a secret", "[gossip]\nkey = [ hunter ]\n", `node.toml:2:9: not TOML, at or after gossip.key: what stands there may be a secret and is not shown (texts need quotes)`},
		{"key without quotes", "[gossip]\nkeys = [\n  hunter,\n]\n", `node.toml:3:3: not TOML, at or after gossip.keys: what stands there may be a secret and is not shown (texts need quotes)`},
		{"after a secret", "[gossip]\nkeys = []\n[transport]\nbind = local\n", `node.toml:4:8: not TOML: expected value but found "local" instead`},
		{"one token for both", "[http]\ntokens = { admin = \"0123456789abcdef\", read = \"0123456789abcdef\" }\n", `node.toml:2:47: http.tokens.read: is the same as http.tokens.admin: whoever may look could do everything`},

		// Not yet.
		{"embedded", oneType + "persistence = \"embedded\"\n", `node.toml:4:15: type.counter.persistence: "embedded" is not available yet: ` + stateNot + `; leave it at "memory"`},
		{"no persistence of that name", oneType + "persistence = \"disk\"\n", `node.toml:4:15: type.counter.persistence: "disk" is none of memory, embedded, postgres`},
		{"standby", oneType + "standby = 1\n", `node.toml:4:11: type.counter.standby: 1 is not available yet: ` + stateNot + `; leave it at 0`},
		{"kv", "[[type]]\nname = \"a\"\nentity = \"kv\"\n", `node.toml:3:10: type.a.entity: "kv" is not available yet; there is counter`},
		{"router", "[[router]]\nname = \"work\"\n", `node.toml:1:1: router.work: [[router]] is not available yet: nodes do not run routers; take it out`},
		{"telemetry", "[telemetry]\nendpoint = \"http://localhost:4317\"\n", `node.toml:2:12: telemetry.endpoint: "http://localhost:4317" is not available yet: nodes send no traces; leave it at ""`},
		{"migration", "[migration]\nrate = \"1MiB/s\"\n", `node.toml:2:8: migration.rate: "1MiB/s" is not available yet: ` + stateNot + `; leave it at "100MiB/s"`},
		{"pin", oneType + "digest = \"sha256:00\"\n", `node.toml:4:10: type.counter.digest: "sha256:00" is not available yet: strategies are not checked against a pin; leave it at ""`},

		// All of them at once, in the order of the file.
		{"everything at once", "capacity = \"x\"\nzoen = 1\n[http]\nmax_body = 1\n", "node.toml:1:12: capacity: want a whole number, got a text, \"x\"\nnode.toml:2:1: zoen: unknown key (did you mean \"zone\"?)\nnode.toml:4:12: http.max_body: want a size such as \"64MiB\", got a whole number, 1"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c, err := Load(Options{File: "node.toml", Data: []byte(tc.doc), Hostname: host})
			require.Error(t, err)
			assert.Nil(t, c)
			assert.Equal(t, tc.want, err.Error())
			assert.NotContains(t, err.Error(), "hunter")
		})
	}
}

// TestBadLayers holds the messages for wrong variables and flags: they name the source instead of a line.
func TestBadLayers(t *testing.T) {
	for _, tc := range []struct {
		name     string
		env, set []string
		want     string
	}{
		{"unknown flag key", nil, []string{"gosip.bind=1"}, `--set gosip: unknown key (did you mean "gossip"?)`},
		{"unknown key in a table", nil, []string{"gossip.bin=1"}, `--set gossip.bin: unknown key (did you mean "gossip.bind"?)`},
		{"unknown type", nil, []string{"type.conter.shards=1"}, `--set type.conter: no [[type]] has this name; there is counter (did you mean "counter"?)`},
		{"unknown key of a type", nil, []string{"type.counter.shard=1"}, `--set type.counter.shard: unknown key (did you mean "type.counter.shards"?)`},
		{"below a value", nil, []string{"zone.x=1"}, `--set zone.x: unknown key: zone has no keys below it`},
		{"no value", nil, []string{"zone"}, `--set zone: want key=value, such as gossip.bind=127.0.0.1:7946`},
		{"no key", nil, []string{"=1"}, `--set not a dotted key`},
		{"secret behind a broken key", nil, []string{"http tokens=hunter2"}, `--set http: want key=value, such as gossip.bind=127.0.0.1:7946`},
		{"secret behind a colon", nil, []string{"http.tokens.admin:hunter2"}, `--set http.tokens.admin: want key=value, such as gossip.bind=127.0.0.1:7946`},
		{"secret behind a space", nil, []string{"http.tokens.admin hunter2"}, `--set http.tokens.admin: want key=value, such as gossip.bind=127.0.0.1:7946`},
		{"secret in a table that does not parse", nil, []string{`http={tokens={admin="hunter2"`}, `--set http: want a table, [http], got a text`},
		{"bare word for a number", nil, []string{"capacity=many"}, `--set capacity: want a whole number, got a text, "many"`},
		{"bad value", nil, []string{"sharding.settle=1"}, `--set sharding.settle: "1" is not a duration (want a number and a unit: "2s", "100ms", "1m30s")`},
		{"newline", nil, []string{"capacity=1\nzone=2"}, `--set capacity: want a whole number, got a text, "1\nzone=2"`},
		{"no UTF-8", nil, []string{"zone=\xff"}, `--set zone: the value is not UTF-8 text`},
		{"variable", []string{"DROVER_CAPACITY=0"}, nil, `DROVER_CAPACITY: capacity: 0 is out of range (want 1 to 1_000_000)`},
		{"variable of a type", []string{"DROVER_TYPE_COUNTER_BUDGET=x"}, nil, `DROVER_TYPE_COUNTER_BUDGET: type.counter.budget: "x" is not a duration (want a number and a unit: "2s", "100ms", "1m30s")`},
		{"flag over a wrong variable", []string{"DROVER_LOG_LEVEL=loud"}, []string{"log.level=info"}, ""},
		{"both", []string{"DROVER_CAPACITY=x"}, []string{"zon=1"}, "DROVER_CAPACITY: capacity: want a whole number, got a text, \"x\"\n--set zon: unknown key (did you mean \"zone\"?)"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := Load(Options{File: "node.toml", Data: []byte(oneType), Env: tc.env, Set: tc.set, Hostname: host})
			if tc.want == "" {
				require.NoError(t, err)
				return
			}
			require.Error(t, err)
			assert.Equal(t, tc.want, err.Error())
		})
	}
}

func TestHostNameThatIsNoName(t *testing.T) {
	for _, h := range []func() (string, error){
		func() (string, error) { return "", errors.New("no name") },
		func() (string, error) { return "my host", nil },
	} {
		_, err := Load(Options{Hostname: h})
		assert.ErrorContains(t, err, "host name (set name to another): name: ")
	}
}

func TestUnreadableFiles(t *testing.T) {
	dir := t.TempDir()
	huge := filepath.Join(dir, "huge.toml")
	require.NoError(t, os.WriteFile(huge, make([]byte, maxFile+1), 0o600))
	for path, want := range map[string]string{
		filepath.Join(dir, "none.toml"): "no such file",
		dir:                             "cannot be read: is a directory",
		huge:                            "larger than 1MiB: not a node.toml",
	} {
		_, err := Load(Options{File: path})
		require.Error(t, err)
		assert.Equal(t, path+": "+want, err.Error())
		assert.Equal(t, strings.HasPrefix(want, "no such"), errors.Is(err, ErrNoFile), want)
	}
}

// TestTagBudget: tags that Serf cannot carry are refused when the config is read (spec 2.1).
func TestTagBudget(t *testing.T) {
	_, err := Load(Options{Data: []byte("[tags]\nnote = \"" + strings.Repeat("x", 300) + "\"\n"), Hostname: host})
	require.Error(t, err)
	assert.Regexp(t, `tags: together with roles and zone they take up to \d+ bytes of gossip's 512: shorten them by \d+`, err.Error())
	_, err = Load(Options{Data: []byte("[tags]\nnote = \"" + strings.Repeat("x", 100) + "\"\n"), Hostname: host})
	assert.NoError(t, err)
}

// TestOddities: what is legal and worth a warning (spec 5.2).
func TestOddities(t *testing.T) {
	key := base64.StdEncoding.EncodeToString(make([]byte, 32))
	assert.Empty(t, load(t, Sample()).Warnings())
	open := []string{"gossip.bind=10.0.0.1:7946", "transport.bind=10.0.0.1:7947", "transport.insecure_bind=true"}
	assert.Len(t, load(t, Sample(), open...).Warnings(), 2)
	assert.Len(t, load(t, Sample(), append(open, "gossip.keys="+key)...).Warnings(), 1)
	assert.Len(t, load(t, Sample(), "http.address=0.0.0.0:80", "http.insecure_bind=true").Warnings(), 1)
	assert.Len(t, load(t, Sample(), "sharding.lease_ttl=2s").Warnings(), 1)
	assert.Empty(t, load(t, Sample(), "http.address=0.0.0.0:80", "http.tokens.admin=0123456789abcdef").Warnings())
	assert.Empty(t, load(t, Sample(), "gossip.bind=10.0.0.1:7946", "transport.bind=10.0.0.1:7947", "gossip.keys="+key,
		`tls={ca="a", cert="b", key="c"}`).Warnings())
}

// TestValidate: a configuration made in Go is checked by the same rules.
func TestValidate(t *testing.T) {
	c := Default()
	c.Name = "a"
	require.NoError(t, c.Validate(nil))
	cart := DefaultType()
	cart.Name = "cart"
	c.Types = []Type{cart}
	require.NoError(t, c.Validate(nil), "entities made in Go have no name in the file")
	assert.EqualError(t, c.Validate([]string{"counter"}), "type.cart.entity: not set (one of counter)")
	c.Types[0].Persistence = PersistPostgres
	c.Types[0].Shards = -1
	err := c.Validate(nil)
	var list Errors
	require.ErrorAs(t, err, &list)
	require.Len(t, list, 2)
	assert.True(t, list[0].NotYet)
	assert.Equal(t, "type.cart.shards: -1 is out of range (want 1 to 100_000)", list[1].Error())
}

// TestFiles: a check says which files are missing, and where they are named.
func TestFiles(t *testing.T) {
	dir := t.TempDir()
	there := filepath.Join(dir, "there.wasm")
	require.NoError(t, os.WriteFile(there, nil, 0o600))
	doc := "[tls]\nca = '" + there + "'\ncert = '" + dir + "'\nkey = 'none.pem'\n" + oneType + "strategy = 'none.wasm'\n" +
		"[[type]]\nname = 'b'\nentity = 'counter'\nstrategy = '" + there + "'\n" +
		"[[type]]\nname = 'c'\nentity = 'counter'\nstrategy = 'sha256:" + strings.Repeat("0", 64) + "'\n"
	_, err := Load(Options{File: "node.toml", Data: []byte(doc), Hostname: host, Files: true})
	assert.EqualError(t, err, "node.toml:3:8: tls.cert: "+tomldoc.QuoteText(dir)+" is a directory\n"+
		`node.toml:4:7: tls.key: "none.pem": no such file`+"\n"+
		`node.toml:8:12: type.counter.strategy: "none.wasm": no such file`)
	assert.NotErrorIs(t, err, ErrNoFile)
	_, err = Load(Options{File: "node.toml", Data: []byte(doc), Hostname: host})
	assert.NoError(t, err)
}

// A value that could not be read is one error: what stands in its place is not judged too.
func TestOneErrorForOneMistake(t *testing.T) {
	for key, text := range map[string]string{"name": "name = 7", "gossip.bind": "gossip.bind = 7", "sharding.lease_ttl": "sharding.lease_ttl = true"} {
		file := filepath.Join(t.TempDir(), "node.toml")
		require.NoError(t, os.WriteFile(file, []byte(text+"\n"), 0o600))
		_, err := Load(Options{File: file})
		var all Errors
		require.ErrorAs(t, err, &all, key)
		require.Len(t, all, 1, "%v", err)
		require.Equal(t, key, all[0].Key)
	}
}
