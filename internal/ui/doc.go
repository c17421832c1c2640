// Package ui holds what people see: one layout, one style sheet and the pages of
// the authorization surface (spec §5, flow rules 2–4). Pages are values; Render
// writes them. They work without JavaScript and carry a content security policy
// that allows none, so that nothing can act in the name of the person who reads.
package ui
