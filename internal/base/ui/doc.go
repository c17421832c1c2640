// Package ui holds what people see: one layout, one style sheet and the pages of
// the authorization surface (contract §5, flow rules 2–4). Pages are values; Render
// writes them. They work without JavaScript and carry a content security policy
// that allows none, so that nothing can act in the name of the person who reads.
// The pages that offer passkeys, which browsers use for scripts alone, allow the
// one that does it (assets/passkeys.js), and hide the offer without it.
//
// Pages of people who are signed in embed a Shell, and the layout gives them the
// navigation. The building blocks (cards, tiles, tables, badges, filters, tabs,
// pages of lists, empty states, charts) are classes of assets/css; base.css
// names them at its top. A page adds no style of its own. Structs hold what people
// read, as text: handlers format, templates arrange.
package ui
