// Package models has no code. Its folder holds what AI models are, say and cost: the providers and
// their dialects, token counts, images, the catalog with its prices, and the formulas of a charge.
// Accounts, apps and balances are unknown here.
package models
