package config

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/droverhq/drover/internal/tomldoc"
)

// envPrefix begins every variable of the environment that is looked at.
const envPrefix = "DROVER_"

// clientVariables belong to the command line's client (spec 5.3), not to a node.
var clientVariables = []string{"DROVER_ADDRESS", "DROVER_TOKEN"}

// injected matches what Kubernetes sets in every pod for a service whose name begins with "drover".
var injected = regexp.MustCompile(`^DROVER_(.*_)?(SERVICE_HOST|SERVICE_PORT(_.+)?|PORT(_\d+_(TCP|UDP)(_(ADDR|PORT|PROTO))?)?)$`)

// environment applies DROVER_… variables. One that names no key is a warning, not an error: the environment of a process is
// not always its owner's to choose. An empty variable counts as not set.
func (l *loader) environment(env []string) {
	known := envNames(l.config)
	names := sortedKeys(known)
	for _, entry := range slices.Sorted(slices.Values(env)) {
		name, value, _ := strings.Cut(entry, "=")
		if !strings.HasPrefix(name, envPrefix) || value == "" || slices.Contains(clientVariables, name) {
			continue
		}
		parts, ok := known[name]
		if !ok {
			if !injected.MatchString(name) {
				l.config.warnings = append(l.config.warnings,
					fmt.Sprintf("%s is set and names no key of node.toml%s", printable(name), tomldoc.DidYouMean(name, names)))
			}
			continue
		}
		if !utf8.ValidString(value) {
			l.errs = append(l.errs, &Error{Source: name, Message: "the value is not UTF-8 text"})
			continue
		}
		l.source = name
		l.setText(parts, value)
		l.source = ""
	}
}

// envNames maps every variable to its key, for the types that there are.
func envNames(c *Config) map[string][]string {
	out := map[string][]string{}
	for _, t := range tables {
		for _, k := range t.keys {
			var key []string
			if k.name != "" {
				key = strings.Split(k.name, ".")
			}
			switch {
			case t.list:
				for i := range t.count(c) {
					element, _ := text(t.keys[0].field(c, i))
					parts := append([]string{t.name, element}, key...)
					out[envName(parts)] = parts
				}
			case t.name == "":
				out[envName(key)] = key
			default:
				parts := append([]string{t.name}, key...)
				out[envName(parts)] = parts
			}
		}
	}
	return out
}

// envName is the variable of a key: DROVER_ and the path in capitals, with '_' for whatever is no letter or digit.
func envName(parts []string) string {
	return envPrefix + strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z':
			return r - 'a' + 'A'
		case r >= 'A' && r <= 'Z', r >= '0' && r <= '9':
			return r
		}
		return '_'
	}, strings.Join(parts, "_"))
}
