// Package tomldoc has what it takes to tell a person what is wrong with a TOML file: where keys and values stand, which the
// TOML library knows and does not tell, how a value is written, and which word was meant. It imports toml alone.
package tomldoc
