package cluster

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/hashicorp/go-msgpack/v2/codec"

	"github.com/droverhq/drover/sharding"
)

// Tag names are short because all tags together have 512 bytes. A user's tags carry the prefix userTag.
const (
	tagIncarnation = "i"
	tagCluster     = "c"
	tagServer      = "s"
	tagTransport   = "t"
	tagHTTP        = "h"
	tagRoles       = "r"
	tagZone        = "z"
	tagVersion     = "v"
	tagExpect      = "e"
	userTag        = "."
)

// MaxTags is Serf's limit on encoded tags, in bytes.
const MaxTags = 512

func encodeTags(i Info) map[string]string {
	tags := map[string]string{tagIncarnation: i.Incarnation.String()}
	put := func(key, value string) {
		if value != "" {
			tags[key] = value
		}
	}
	if !i.ClusterID.IsZero() {
		tags[tagCluster] = i.ClusterID.String()
	}
	if !i.Server.IsZero() {
		tags[tagServer] = i.Server.String()
	}
	put(tagTransport, i.Transport)
	put(tagHTTP, i.HTTP)
	put(tagRoles, strings.Join(i.Roles, ","))
	put(tagZone, i.Zone)
	put(tagVersion, i.Version)
	if i.Expect > 0 {
		tags[tagExpect] = strconv.Itoa(i.Expect)
	}
	for _, k := range slices.Sorted(maps.Keys(i.Tags)) {
		tags[userTag+k] = i.Tags[k]
	}
	return tags
}

func decodeTags(tags map[string]string) (Info, error) {
	var i Info
	id := func(key string, into *sharding.Incarnation) error {
		text, ok := tags[key]
		if !ok {
			return nil
		}
		v, err := sharding.ParseIncarnation(text)
		if err != nil {
			return fmt.Errorf("tag %s: %w", key, err)
		}
		*into = v
		return nil
	}
	if _, ok := tags[tagIncarnation]; !ok {
		return i, errors.New("it is no Drover node: it has no incarnation tag")
	}
	if err := errors.Join(id(tagIncarnation, &i.Incarnation), id(tagCluster, &i.ClusterID), id(tagServer, &i.Server)); err != nil {
		return i, err
	}
	i.Transport, i.HTTP, i.Zone, i.Version = tags[tagTransport], tags[tagHTTP], tags[tagZone], tags[tagVersion]
	if r := tags[tagRoles]; r != "" {
		i.Roles = strings.Split(r, ",")
	}
	if e, ok := tags[tagExpect]; ok {
		n, err := strconv.Atoi(e)
		if err != nil || n < 0 || n > 1000 {
			return i, fmt.Errorf("tag %s = %q: want a small number", tagExpect, e)
		}
		i.Expect = n
	}
	for k, v := range tags {
		if name, ok := strings.CutPrefix(k, userTag); ok {
			if i.Tags == nil {
				i.Tags = make(map[string]string)
			}
			i.Tags[name] = v
		}
	}
	return i, nil
}

// tagMagic begins Serf's encoding of tags.
const tagMagic = 255

// decodeMeta reads Serf's encoding of tags: a magic byte and a msgpack map. It bounds what it reads by memberlist's limit on meta data.
func decodeMeta(meta []byte) (map[string]string, error) {
	if len(meta) == 0 || meta[0] != tagMagic {
		return nil, errors.New("it is no Drover node: it has no tags")
	}
	if len(meta) > MaxTags {
		return nil, fmt.Errorf("its tags have %d bytes, at most %d are legal", len(meta), MaxTags)
	}
	var tags map[string]string
	if err := codec.NewDecoderBytes(meta[1:], &codec.MsgpackHandle{}).Decode(&tags); err != nil {
		return nil, fmt.Errorf("its tags do not decode: %w", err)
	}
	return tags, nil
}
