package host

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/tetratelabs/wazero"
)

// sumSuffix marks the file that holds the SHA-256 of the one beside it, tempSuffix
// one that wazero is still writing, in this process or another.
const (
	sumSuffix  = ".sum"
	tempSuffix = ".tmp"
)

// What the cache may grow to: whoever tries out strategies all day leaves some
// megabytes a try, and all of it is read at each start.
const (
	maxCacheBytes = 256 << 20
	maxTempAge    = time.Hour // of what a process that was killed has left
)

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
	if err := sweepCache(inner, maxCacheBytes); err != nil {
		return nil, "", fmt.Errorf("cache of compiled strategies: %w", err)
	}
	cache, err := wazero.NewCompilationCacheWithDir(inner)
	if err != nil {
		return nil, "", fmt.Errorf("cache of compiled strategies in %s: %w", inner, err)
	}
	return cache, inner, nil
}

// checkPrivate refuses a directory in which others could place machine code: one
// that they own, or may write to. Around the one that holds the code root's will
// do, and a sticky bit. Where files have no owner in Unix's sense their mode says
// nothing either.
func checkPrivate(dir string, info fs.FileInfo, holds bool, euid int) error {
	owner, ok := ownerOf(info)
	if !ok {
		return nil
	}
	if owner != euid && (holds || owner != 0) {
		return fmt.Errorf("%s belongs to user %d, the node runs as %d: the owner could place machine code there; remove it, or chown it", dir, owner, euid)
	}
	if info.Mode().Perm()&0o022 != 0 && (holds || info.Mode()&fs.ModeSticky == 0) {
		return fmt.Errorf("%s has mode %#o: others could place machine code there; run chmod 700 on it, or remove it", dir, info.Mode().Perm())
	}
	return nil
}

// cacheFile is one file of machine code.
type cacheFile struct {
	path     string
	size     int64
	modified time.Time
}

// cacheFiles returns the files that hold machine code, the latest first, those
// that are still being written, and what is no file: reading a pipe or a device
// need not come to an end.
func cacheFiles(dir string) (code, temp, foreign []cacheFile, err error) {
	all, err := filesBelow(dir)
	for _, f := range all {
		info, err := os.Lstat(f)
		if err != nil {
			continue // another process has removed it
		}
		file := cacheFile{f, info.Size(), info.ModTime()}
		if !info.Mode().IsRegular() {
			foreign = append(foreign, file)
			continue
		}
		if strings.HasSuffix(f, sumSuffix) {
			continue // it goes with its file
		}
		if strings.HasSuffix(f, tempSuffix) {
			temp = append(temp, file)
		} else {
			code = append(code, file)
		}
	}
	slices.SortFunc(code, func(a, b cacheFile) int { return b.modified.Compare(a.modified) })
	return code, temp, foreign, err
}

// filesBelow returns what lies in the directories in dir.
func filesBelow(dir string) (paths []string, err error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	for _, e := range entries {
		if !e.IsDir() {
			continue
		}
		inner := filepath.Join(dir, e.Name())
		files, ierr := os.ReadDir(inner)
		if ierr != nil && !errors.Is(ierr, fs.ErrNotExist) { // another process has removed it
			err = errors.Join(err, ierr)
		}
		for _, f := range files {
			paths = append(paths, filepath.Join(inner, f.Name()))
		}
	}
	return paths, err
}

// sweepCache removes every file that is not what sealCache saw, the oldest ones
// beyond so many bytes, and what was never written to its end.
func sweepCache(dir string, most int64) error {
	files, temp, foreign, err := cacheFiles(dir)
	errs := []error{err}
	for _, f := range foreign {
		errs = append(errs, os.RemoveAll(f.path), os.RemoveAll(f.path+sumSuffix))
	}
	var total int64
	for _, f := range files {
		want, err := os.ReadFile(f.path + sumSuffix)
		if total += f.size; err == nil && total <= most {
			var got []byte
			if got, err = sumOf(f.path); err == nil && bytes.Equal(got, want) {
				continue
			}
		}
		errs = append(errs, os.RemoveAll(f.path), os.RemoveAll(f.path+sumSuffix))
	}
	for _, f := range temp {
		if time.Since(f.modified) > maxTempAge {
			errs = append(errs, os.RemoveAll(f.path))
		}
	}
	return errors.Join(errs...)
}

// sealCache notes what the files hold that have just been written.
func sealCache(dir string) error {
	files, _, _, err := cacheFiles(dir)
	errs := []error{err}
	for _, f := range files {
		if _, err := os.Stat(f.path + sumSuffix); err == nil {
			continue
		}
		sum, err := sumOf(f.path)
		if err == nil {
			err = os.WriteFile(f.path+sumSuffix, sum, 0o600)
		}
		if !errors.Is(err, fs.ErrNotExist) { // another runtime has removed it
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
// wazero wants its own directories to stay.
func clearCache(dir string) error { return sweepCache(dir, -1) }
