package cluster

import (
	"encoding/json"
	"errors"
	"io/fs"
	"maps"
	"os"
	"time"

	"github.com/droverhq/drover/internal/datadir"
	"github.com/droverhq/drover/sharding"
)

// Serf's own snapshot forgets who has left, and is tried once, at the start. When a whole cluster ends and starts again that is not enough: each
// node saw others leave, and the first one up finds nobody. So the gossip addresses of all members are remembered here, and those that have not been
// seen since the start are tried until they are.

// memory is which members were known, by name, with their gossip address.
type memory map[sharding.NodeID]string

// recall reads what was remembered. A file that is missing or damaged is no more than a node without memory: there are join addresses too.
func recall(path string) (memory, error) {
	m := memory{}
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return m, nil
	}
	if err == nil {
		err = json.Unmarshal(b, &m)
	}
	if err != nil {
		return memory{}, err
	}
	return m, nil
}

// remember updates the memory with the members that are known now. What has not been seen since the start stays; what was seen and is gone, as it
// was forgotten, goes.
func (c *Cluster) remember(members []Member) {
	if c.cfg.Remember == "" {
		return
	}
	next := memory{}
	c.mu.Lock()
	for _, m := range members {
		if m.Name != c.cfg.Name {
			next[m.Name] = m.Gossip
			delete(c.unseen, m.Name)
		}
	}
	maps.Copy(next, c.unseen)
	same := c.remembered != nil && maps.Equal(next, c.remembered)
	c.mu.Unlock()
	if same {
		return
	}
	b, err := json.MarshalIndent(next, "", "  ")
	if err == nil {
		err = datadir.WriteFile(c.cfg.Remember, append(b, '\n'))
	}
	if err != nil { // it is tried again within seconds
		if ok, hidden := c.limit.Pass(c.cfg.Remember); ok {
			c.cfg.Logger.Warn("the members' addresses cannot be written: as long as that is so this node finds the others by gossip.join alone after a restart",
				"error", err, "repeated", hidden, "hint", "make room on the disk of data_dir")
		}
		return
	}
	c.mu.Lock()
	c.remembered = next
	c.mu.Unlock()
}

const (
	seekFirst = 250 * time.Millisecond
	seekMost  = 30 * time.Second
)

// seek tries the members that are remembered and have not been seen since the start. It ends once there is none.
func (c *Cluster) seek() {
	defer c.wg.Done()
	for wait := seekFirst; ; wait = min(2*wait, seekMost) {
		select {
		case <-c.ctx.Done():
			return
		case <-time.After(wait):
		}
		c.mu.Lock()
		var addresses []string
		for _, a := range c.unseen { // unordered: all are tried
			addresses = append(addresses, a)
		}
		c.mu.Unlock()
		if len(addresses) == 0 {
			return
		}
		if n, err := c.serf.Join(addresses, true); n == 0 {
			c.cfg.Logger.Debug("remembered members do not answer yet", "addresses", addresses, "error", err)
			continue
		}
		c.poke()
	}
}
