// Package console serves the developer's pages under /developer: apps with their
// settings, features, test accounts, provider keys and webhooks, what their calls
// came to, the way out of the sandbox, and a playground (contract §2, App, Feature and
// Account; §3, App tier; §4.7, §4.8). It keeps nothing itself: every page is over
// the store of its noun, by the same rules as the API. A GET never changes
// anything, and another developer's app is answered like one that does not exist.
package console
