package pki

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"time"
)

// Names of files in the directory of an authority. Its key stays where certificates are made; nodes get AuthorityCert.
const (
	AuthorityCert = "ca.pem"
	AuthorityKey  = "ca-key.pem"
)

// fileName holds for node names that make a file name; it is what node.toml allows.
var fileName = regexp.MustCompile(`^[A-Za-z0-9_-][A-Za-z0-9._-]{0,127}$`)

// Files are paths of what a command wrote.
type Files struct {
	Cert string `json:"cert"`
	Key  string `json:"key"`
}

// CreateAuthority makes an authority and writes it to dir, which is made if need be. A file that is there already is an error
// that matches fs.ErrExist, and nothing is changed.
func CreateAuthority(dir, label string, now time.Time) (Files, error) {
	if err := checkName("cluster", label); err != nil {
		return Files{}, err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return Files{}, err
	}
	_, pair, err := NewAuthority(label, now)
	if err != nil {
		return Files{}, err
	}
	return write(Files{Cert: filepath.Join(dir, AuthorityCert), Key: filepath.Join(dir, AuthorityKey)}, pair)
}

// CreateNode makes the certificate of a node by the authority in ca, and writes it to dir as NAME.pem and NAME-key.pem.
// A file that is there already is an error that matches fs.ErrExist, and nothing is changed.
func CreateNode(ca, dir string, id Identity, hosts []string, now time.Time) (Files, error) {
	name := string(id.Node)
	if !fileName.MatchString(name) || name == "ca" {
		return Files{}, fmt.Errorf("node name %q: want letters, digits, '.', '-' and '_', at most 128, not a '.' first, and not \"ca\"", name)
	}
	pair, err := readPair(filepath.Join(ca, AuthorityCert), filepath.Join(ca, AuthorityKey))
	if err != nil {
		return Files{}, fmt.Errorf("read the authority: %w", err)
	}
	authority, err := ReadAuthority(pair)
	if err != nil {
		return Files{}, err
	}
	own, err := authority.Issue(id, hosts, now)
	if err != nil {
		return Files{}, err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return Files{}, err
	}
	return write(Files{Cert: filepath.Join(dir, name+".pem"), Key: filepath.Join(dir, name+"-key.pem")}, own)
}

// Load reads the files that [tls] ca, cert and key name.
func Load(ca, cert, key string, now time.Time) (*Credentials, error) {
	bundle, err := os.ReadFile(ca)
	if err != nil {
		return nil, fmt.Errorf("tls.ca: %w", err)
	}
	own, err := readPair(cert, key)
	if err != nil {
		return nil, fmt.Errorf("tls.cert and tls.key: %w", err)
	}
	return Parse(bundle, own, now)
}

func readPair(cert, key string) (Pair, error) {
	var p Pair
	var err1, err2 error
	p.Cert, err1 = os.ReadFile(cert)
	p.Key, err2 = os.ReadFile(key)
	return p, errors.Join(err1, err2)
}

// write writes both files or none. The key comes first: it is the one that must not be lost, and never readable by others.
func write(files Files, pair Pair) (Files, error) {
	for _, path := range []string{files.Key, files.Cert} {
		if _, err := os.Lstat(path); err == nil {
			return Files{}, &fs.PathError{Op: "write", Path: path, Err: fs.ErrExist}
		}
	}
	if err := writeNew(files.Key, pair.Key, 0o600); err != nil {
		return Files{}, err
	}
	if err := writeNew(files.Cert, pair.Cert, 0o644); err != nil {
		return Files{}, errors.Join(err, os.Remove(files.Key))
	}
	return files, nil
}

func writeNew(path string, content []byte, mode fs.FileMode) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return errors.Join(err, os.Remove(path))
	}
	return nil
}
