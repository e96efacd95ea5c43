package client

import "net/http"

// SetTransport replaces the network.
func (c *Client) SetTransport(t http.RoundTripper) { c.http.Transport = t }
