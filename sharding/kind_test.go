package sharding_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/droverhq/drover/internal/builtin"
	"github.com/droverhq/drover/sharding"
)

// What is wrong with a message is said in the words of whoever sent it: one line, no Go types (spec 5.4).
func TestBadMessagesArePlain(t *testing.T) {
	counter := builtin.Kinds()[0]
	for payload, want := range map[string]string{
		"\x01" + `{"add":"x"}`:                  `bad message: "add" is of the kind string: want a whole number of 64 bits`,
		"\x01" + `{"add":1.5}`:                  `bad message: "add" is of the kind number 1.5: want a whole number of 64 bits`,
		"\x01" + `{"add":99999999999999999999}`: `bad message: "add" is of the kind number 99999999999999999999: want a whole number of 64 bits`,
		"\x01" + `{"get":1}`:                    `bad message: "get" is of the kind number: want true or false`,
		"\x01" + `7`:                            `bad message: the message is of the kind number: want an object`,
		"\x01" + `{"ad":1}`:                     `bad message: unknown field "ad"`,
		"\x01" + `{} {}`:                        `bad message: there is something behind the JSON value`,
		"\x01" + `{"get":true}]x`:               `bad message: there is something behind the JSON value`,
		"\x01" + `{}`:                           `bad message: neither add nor get is there: a counter takes {"add":n} or {"get":true}`,
		"\x01" + `{"add":1,"get":true}`:         `bad message: add and get are both there: a counter takes {"add":n} or {"get":true}`,
		"\x00\x07":                              `bad message: the message does not fit: it holds a positive integer`,
		"":                                      `bad message: it is empty`,
		"\x09":                                  `bad message: format 9 is not known`,
	} {
		_, err := counter.New(nil).Receive(nil, []byte(payload))
		require.ErrorIs(t, err, sharding.ErrBadMessage, payload)
		assert.Equal(t, want, err.Error(), payload)
	}
}
