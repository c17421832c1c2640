// Package holds lets an app charge its users for work of its own, such as a search or a tool of an agent, at its own
// price: it holds an amount, and captures what the work came to, or releases it (decision 109). Its holds are those of
// calls: the same limits, receipts and events.
package holds
