// Package httpapi serves the node's HTTP API (spec 5.4): routes, authentication, limits, problems.
//
// It owns what goes over HTTP and nothing of what it means: handlers see the Node interface that this package declares. It never imports
// serf, raft or wazero, nor the packages that wrap them.
//
// One table (routes.go) drives the router, the authorization of each route and /openapi.json.
//
// Goroutines: those of net/http, and one that serves the listener, started by Server.Serve and ended by Server.Shutdown.
package httpapi
