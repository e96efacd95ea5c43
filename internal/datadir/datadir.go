// Package datadir owns a node's data_dir: its lock, and the identities that outlive a process (spec 2.1, 3.1).
package datadir

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"

	"github.com/droverhq/drover/sharding"
)

// Identity is what data_dir remembers of the node. It is written whole, synced, and renamed into place.
type Identity struct {
	V       int                  `json:"v"`
	Node    sharding.NodeID      `json:"node,omitempty"` // whose directory it is; files of the first releases lack it, until they are opened
	Server  sharding.Incarnation `json:"server"`         // of the raft server: a wiped disk is another server, whatever its name
	Store   sharding.Incarnation `json:"store"`          // of the embedded store: likewise
	Cluster sharding.Incarnation `json:"cluster"`        // zero until the node belongs to a cluster
	// Past lists earlier incarnations, newest last, at most maxPast. Whoever holds the lock knows that they are dead.
	Past []sharding.Incarnation `json:"past"`
}

const (
	version  = 1
	maxPast  = 8
	lockFile = "LOCK"
	idFile   = "node.json"

	unfinished = ".new-" // begins the name of a file that is being written

	restoreHint = "restore it from a backup; with an empty data_dir the node joins as a new one, and `drover cluster forget` drops the old"
)

// RaftDir is the name of the directory, below data_dir, of the raft server's log and snapshots.
const RaftDir = "raft"

// Dir is an open, locked data_dir. Its methods may be called from any goroutine.
type Dir struct {
	path        string
	lock        *os.File
	incarnation sharding.Incarnation
	renewed     bool // see Renewed

	mu       sync.Mutex
	identity Identity
}

// Open creates path (0700) where needed, locks it and reads its identity, making one on first use, with a fresh incarnation noted
// before it is used. A directory in use, one that cannot be written (full disk, permissions), a torn identity and the directory of another node than
// the one of this name are errors that say so: a copied directory would make two raft servers with one identity, which may each vote in the same term.
func Open(path string, node sharding.NodeID) (*Dir, error) {
	if err := os.MkdirAll(path, 0o700); err != nil {
		return nil, fmt.Errorf("data_dir %q cannot be made: %w", path, err)
	}
	lock, err := os.OpenFile(filepath.Join(path, lockFile), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("data_dir %q: %w", path, err)
	}
	d := &Dir{path: path, lock: lock, incarnation: sharding.NewIncarnation()}
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		lock.Close()
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, fmt.Errorf("data_dir %q is in use by another drover process%s: stop it, or give this node a data_dir of its own", path, holder(path))
		}
		return nil, fmt.Errorf("data_dir %q cannot be locked: %w", path, err)
	}
	d.sweep()
	if err := d.load(node); err != nil {
		lock.Close()
		return nil, err
	}
	err = lock.Truncate(0)
	if err == nil {
		_, err = lock.WriteAt([]byte(fmt.Sprintf("%d\n", os.Getpid())), 0)
	}
	if err != nil {
		lock.Close()
		return nil, fmt.Errorf("data_dir %q cannot be written: %w", path, err)
	}
	return d, nil
}

// sweep removes what a process was writing when it was killed. Only whoever holds the lock writes here.
func (d *Dir) sweep() {
	for _, dir := range []string{"", "*"} {
		left, _ := filepath.Glob(filepath.Join(d.path, dir, unfinished+"*")) // the pattern is a constant
		for _, f := range left {
			_ = os.Remove(f) // it only takes room
		}
	}
}

func holder(path string) string {
	b, err := os.ReadFile(filepath.Join(path, lockFile))
	if pid := strings.TrimSpace(string(b)); err == nil && pid != "" {
		return " (pid " + pid + ")"
	}
	return ""
}

func (d *Dir) load(node sharding.NodeID) error {
	b, err := os.ReadFile(filepath.Join(d.path, idFile))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		// A server of a new name on an old log would bring the entries of one cluster into another.
		if _, err := os.Lstat(d.Path(RaftDir)); err == nil {
			return fmt.Errorf("%s is gone, though there is a raft log in %s: %s", d.Path(idFile), d.Path(RaftDir), restoreHint)
		}
		d.identity = Identity{V: version, Server: sharding.NewIncarnation(), Store: sharding.NewIncarnation()}
	case err != nil:
		return fmt.Errorf("data_dir %q: %w", d.path, err)
	default:
		if err := json.Unmarshal(b, &d.identity); err != nil {
			return fmt.Errorf("%s is damaged (%w): %s", filepath.Join(d.path, idFile), err, restoreHint)
		}
		if d.identity.V != version || d.identity.Server.IsZero() || d.identity.Store.IsZero() {
			return fmt.Errorf("%s has version %d, this drover reads version %d: it was written by another release", filepath.Join(d.path, idFile), d.identity.V, version)
		}
		if of := d.identity.Node; of != "" && of != node {
			return fmt.Errorf("data_dir %q belongs to node %q, this node is %q: give each node a data_dir of its own (an empty one for a new node, never a copy); a node keeps its name for the life of its data_dir: name = %q",
				d.path, of, node, of)
		}
	}
	next := d.identity
	if err == nil && d.lostLog() {
		// The server of the old name may have voted, and acknowledged entries, that nothing here knows of any more (spec 2.1).
		next.Server, d.renewed = sharding.NewIncarnation(), true
	}
	next.Node = node
	next.Past = append(append([]sharding.Incarnation(nil), next.Past...), d.incarnation)
	if n := len(next.Past) - maxPast - 1; n > 0 {
		next.Past = next.Past[n:]
	}
	return d.store(next)
}

// lostLog says whether the directory has no raft log. A node that never had one can take another server's name as well.
func (d *Dir) lostLog() bool {
	files, err := os.ReadDir(d.Path(RaftDir))
	return errors.Is(err, fs.ErrNotExist) || err == nil && len(files) == 0
}

// Renewed says whether Open found the identity of a raft server without its log, and gave the directory another.
func (d *Dir) Renewed() bool { return d.renewed }

func (d *Dir) store(next Identity) error {
	b, err := json.MarshalIndent(next, "", "  ")
	if err != nil {
		return err
	}
	if err := WriteFile(filepath.Join(d.path, idFile), append(b, '\n')); err != nil {
		return fmt.Errorf("data_dir %q cannot be written: %w", d.path, err)
	}
	d.identity = next
	return nil
}

// Path joins names to the directory.
func (d *Dir) Path(names ...string) string {
	return filepath.Join(append([]string{d.path}, names...)...)
}

// Incarnation is this process's.
func (d *Dir) Incarnation() sharding.Incarnation { return d.incarnation }

// Identity gives what is remembered.
func (d *Dir) Identity() Identity {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.identity
}

// Cluster gives the cluster that the node belongs to; zero: none yet.
func (d *Dir) Cluster() sharding.Incarnation { return d.Identity().Cluster }

// Supersedes lists the earlier incarnations of this directory's node: they are dead, because this process holds the lock.
func (d *Dir) Supersedes() []sharding.Incarnation {
	past := d.Identity().Past
	return past[: len(past)-1 : len(past)-1]
}

// SetCluster remembers the cluster that the node belongs to. Another one than before is an error.
func (d *Dir) SetCluster(id sharding.Incarnation) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.identity.Cluster == id {
		return nil
	}
	if !d.identity.Cluster.IsZero() {
		return fmt.Errorf("data_dir %q belongs to cluster %s, this one is %s: correct gossip.join, or start with an empty data_dir", d.path, d.identity.Cluster, id)
	}
	next := d.identity
	next.Cluster = id
	return d.store(next)
}

// Close frees the lock.
func (d *Dir) Close() error { return d.lock.Close() }

// WriteFile writes a file whole or not at all: into a temporary one, synced, renamed, and the directory synced. Mode 0600.
func WriteFile(path string, data []byte) error {
	f, err := os.CreateTemp(filepath.Dir(path), unfinished+"*")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name()) // a no-op once renamed
	if _, err = f.Write(data); err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	if err := os.Rename(f.Name(), path); err != nil {
		return err
	}
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}
