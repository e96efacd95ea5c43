package host

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/tetratelabs/wazero"
)

// sumSuffix marks the file that holds the SHA-256 of the one beside it.
const sumSuffix = ".sum"

// openCache opens the cache of machine code for the present cost model below
// dir, and returns its directory. wazero keys what lies in it by its own version,
// the machine's features and the digest of the rewritten module. It believes
// lengths and offsets in a file, so that a flipped bit can end the process: what
// is not as it was written is removed first.
func openCache(dir string) (wazero.CompilationCache, string, error) {
	inner := filepath.Join(dir, fmt.Sprintf("cost-model-%d", CostModel))
	if err := os.MkdirAll(inner, 0o700); err != nil {
		return nil, "", fmt.Errorf("cache of compiled strategies: %w", err)
	}
	for _, d := range []string{dir, inner} {
		info, err := os.Stat(d)
		if err == nil {
			err = checkPrivate(d, info, d == inner, os.Geteuid())
		}
		if err != nil {
			return nil, "", fmt.Errorf("cache of compiled strategies: %w", err)
		}
	}
	if err := sweepCache(inner); err != nil {
		return nil, "", fmt.Errorf("cache of compiled strategies: %w", err)
	}
	cache, err := wazero.NewCompilationCacheWithDir(inner)
	if err != nil {
		return nil, "", fmt.Errorf("cache of compiled strategies in %s: %w", inner, err)
	}
	return cache, inner, nil
}

// checkPrivate refuses a directory in which others could place machine code: one
// that they may write to, or, if it holds the code itself, that they own. Around
// that one a sticky bit will do.
func checkPrivate(dir string, info fs.FileInfo, holds bool, euid int) error {
	if owner, ok := ownerOf(info); ok && holds && owner != euid {
		return fmt.Errorf("%s belongs to user %d, the node runs as %d: the owner could place machine code there; remove it, or chown it", dir, owner, euid)
	}
	if info.Mode().Perm()&0o022 != 0 && (holds || info.Mode()&fs.ModeSticky == 0) {
		return fmt.Errorf("%s has mode %#o: others could place machine code there; run chmod 700 on it, or remove it", dir, info.Mode().Perm())
	}
	return nil
}

// cacheFiles returns the files that hold machine code.
func cacheFiles(dir string) ([]string, error) {
	all, err := filepath.Glob(filepath.Join(dir, "*", "*"))
	if err != nil {
		return nil, err
	}
	var files []string
	for _, f := range all {
		if !strings.HasSuffix(f, sumSuffix) {
			files = append(files, f)
		}
	}
	return files, nil
}

// sweepCache removes every file that is not what sealCache saw.
func sweepCache(dir string) error {
	files, err := cacheFiles(dir)
	errs := []error{err}
	for _, f := range files {
		want, err := os.ReadFile(f + sumSuffix)
		if err == nil {
			var got []byte
			if got, err = sumOf(f); err == nil && bytes.Equal(got, want) {
				continue
			}
		}
		errs = append(errs, os.RemoveAll(f))
	}
	return errors.Join(errs...)
}

// sealCache notes what the files hold that have just been written.
func sealCache(dir string) error {
	files, err := cacheFiles(dir)
	errs := []error{err}
	for _, f := range files {
		if _, err := os.Stat(f + sumSuffix); err == nil {
			continue
		}
		sum, err := sumOf(f)
		if err == nil {
			err = os.WriteFile(f+sumSuffix, sum, 0o600)
		}
		if !errors.Is(err, fs.ErrNotExist) { // another runtime's, still being written
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

func sumOf(file string) ([]byte, error) {
	b, err := os.ReadFile(file)
	sum := sha256.Sum256(b)
	return sum[:], err
}

// clearCache removes the machine code that is kept, so that it is made anew.
func clearCache(dir string) error {
	// wazero wants its own directories to stay.
	files, err := filepath.Glob(filepath.Join(dir, "*", "*"))
	errs := []error{err}
	for _, f := range files {
		errs = append(errs, os.RemoveAll(f))
	}
	return errors.Join(errs...)
}
