// Package modules is the content-addressed store of strategy modules in data_dir. It judges none of them; the host does.
package modules

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/droverhq/drover/internal/datadir"
)

// Digest is the sha256 of a module.
type Digest [32]byte

// String gives the hexadecimal form.
func (d Digest) String() string { return hex.EncodeToString(d[:]) }

// ParseDigest reads 64 hexadecimal digits, with or without "sha256:" before them.
func ParseDigest(s string) (Digest, error) {
	var d Digest
	b, err := hex.DecodeString(strings.TrimPrefix(s, "sha256:"))
	if err != nil || len(b) != len(d) {
		return d, fmt.Errorf("%q is no sha256: want 64 hexadecimal digits", s)
	}
	return Digest(b), nil
}

// MaxSize is the largest module that is stored, as spec 1.3 admits none larger.
const MaxSize = 8 << 20

// ErrNotHere says that the store lacks a module.
var ErrNotHere = errors.New("module is not in this node's store")

// Store keeps modules by digest. Its methods may be called from any goroutine.
type Store struct {
	dir     string
	builtin map[Digest][]byte // those that every build embeds: never missing
}

// Open opens the store in dir, making it where needed. builtin modules are always there.
func Open(dir string, builtin ...[]byte) (*Store, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("module store: %w", err)
	}
	s := &Store{dir: dir, builtin: make(map[Digest][]byte)}
	for _, m := range builtin {
		s.builtin[sha256.Sum256(m)] = m
	}
	return s, nil
}

func (s *Store) path(d Digest) string { return filepath.Join(s.dir, d.String()+".wasm") }

// Put stores a module durably and returns its digest; a built-in one too: the log may name it for longer than builds embed it.
func (s *Store) Put(module []byte) (Digest, error) {
	d := Digest(sha256.Sum256(module))
	if len(module) > MaxSize {
		return d, fmt.Errorf("module of %d bytes: at most %d are stored", len(module), MaxSize)
	}
	if b, err := os.ReadFile(s.path(d)); err == nil && bytes.Equal(b, module) {
		return d, nil
	}
	if err := datadir.WriteFile(s.path(d), module); err != nil {
		return d, fmt.Errorf("module %s cannot be stored: %w", d, err)
	}
	return d, nil
}

// Get returns a module. One that is missing gives ErrNotHere; so does one whose bytes have changed on disk: it is to be had elsewhere, and
// Put replaces that copy.
func (s *Store) Get(d Digest) ([]byte, error) {
	if m, ok := s.builtin[d]; ok {
		return m, nil
	}
	b, err := os.ReadFile(s.path(d))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%s: %w", d, ErrNotHere)
	}
	if err != nil {
		return nil, fmt.Errorf("module %s: %w", d, err)
	}
	if sha256.Sum256(b) != d {
		return nil, fmt.Errorf("module %s is damaged on disk, in %s: %w", d, s.path(d), ErrNotHere)
	}
	return b, nil
}

// Has says whether a module is here, and sound.
func (s *Store) Has(d Digest) bool {
	_, err := s.Get(d)
	return err == nil
}
