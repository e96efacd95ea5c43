package transport

import (
	"crypto/hmac"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/binary"
	"fmt"
)

// direction domains keep a MAC of one side from serving as the other's, which would let a node be used against itself.
const (
	domainKey      = "drover transport handshake key 1"
	domainListener = "drover transport listener 1"
	domainDialler  = "drover transport dialler 1"
)

// keyring holds keys made from the gossip keys for this handshake alone: the gossip layer uses the originals as AES keys.
type keyring [][macSize]byte

func newKeyring(keys [][]byte) (keyring, error) {
	if len(keys) > maxKeys {
		return nil, fmt.Errorf("%d gossip keys: at most %d are allowed", len(keys), maxKeys)
	}
	ring := make(keyring, len(keys))
	for i, key := range keys {
		if len(key) < 16 {
			return nil, fmt.Errorf("gossip key %d has %d bytes: want at least 16", i+1, len(key))
		}
		mac := hmac.New(sha256.New, key)
		mac.Write([]byte(domainKey))
		mac.Sum(ring[i][:0])
	}
	return ring, nil
}

// transcript is all that both sides said about themselves: names, incarnations, class, clusters, roles, nonces.
func transcript(hello, welcome []byte) []byte {
	b := binary.BigEndian.AppendUint32(nil, uint32(len(hello)))
	b = append(b, hello...)
	return append(b, welcome...)
}

func sum(key [macSize]byte, domain string, transcript []byte) (out [macSize]byte) {
	mac := hmac.New(sha256.New, key[:])
	mac.Write([]byte(domain))
	mac.Write([]byte{0})
	mac.Write(transcript)
	mac.Sum(out[:0])
	return out
}

// sums gives a MAC by each key.
func (ring keyring) sums(domain string, transcript []byte) [][macSize]byte {
	out := make([][macSize]byte, len(ring))
	for i, key := range ring {
		out[i] = sum(key, domain, transcript)
	}
	return out
}

// find gives the key that made one of the MACs. It compares all with all, in a time that tells nothing about them.
func (ring keyring) find(domain string, transcript []byte, macs [][macSize]byte) (key [macSize]byte, found bool) {
	at := 0
	for i := range ring {
		want := sum(ring[i], domain, transcript)
		for j := range macs {
			hit := subtle.ConstantTimeCompare(want[:], macs[j][:])
			at = subtle.ConstantTimeSelect(hit, i+1, at)
		}
	}
	if at == 0 {
		return key, false
	}
	return ring[at-1], true
}
