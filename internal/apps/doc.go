// Package apps has no code. Its folder holds apps and what belongs to them: features, test
// accounts, provider keys, connections, OAuth, webhooks, going live, and the watch over their risk.
// Calls are in the folder gateway.
package apps
