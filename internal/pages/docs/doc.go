// Package docs serves the documentation for app developers: the guides of docs/guide under /docs
// with a search, the reference of the HTTP API under /reference, and both as plain text for language
// models (/llms.txt, /llms-full.txt). The pages need no session. A signed-in developer sees the
// values of an own sandbox app in the examples.
package docs
